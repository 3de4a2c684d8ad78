from pathlib import Path

import pytest

from fedpca.results.read.judgements import judgements
from fedpca.results.read.runs import find_runs
from tests.results.test_rows import write_run


def test_accusations_over_seeds(tmp_path: Path):
    write_run(tmp_path / "a", 0, groups=["common", "mislabeled", "rare"])
    write_run(tmp_path / "b", 1, groups=["common", "mislabeled", "mislabeled"])
    text = (tmp_path / "b/rounds.jsonl").read_text()
    (tmp_path / "b/rounds.jsonl").write_text(text.replace('"recall": 0.5', '"recall": 0.7'))
    told = judgements(find_runs([tmp_path]))
    assert told.accused == {"1": 2, "10": 1}
    assert (told.precision, told.recall, told.f1) == pytest.approx((1, 0.6, 2 / 3))
    assert (told.accused_common, told.accused_rare, told.seeds) == (0, 1, 2)


def test_only_the_last_rounds_count(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.9, 0.8)] * 7, groups=["common", "mislabeled", "rare"])
    lines = (tmp_path / "a/rounds.jsonl").read_text().splitlines(keepends=True)
    lines[:2] = [line.replace('"recall": 0.5', '"recall": 0.0') for line in lines[:2]]
    (tmp_path / "a/rounds.jsonl").write_text("".join(lines))
    assert judgements(find_runs([tmp_path])).recall == pytest.approx(0.5)


def test_methods_without_groups_find_nobody_and_say_nothing(tmp_path: Path):
    write_run(tmp_path / "a")
    assert judgements(find_runs([tmp_path])) is None


def test_a_seed_in_its_warm_up_does_not_count_yet(tmp_path: Path):
    write_run(tmp_path / "a", 0, groups=["common", "mislabeled", "rare"])
    write_run(tmp_path / "b", 1, groups=[None, None, None])
    assert judgements(find_runs([tmp_path])).seeds == 1


def test_without_the_truth_there_are_names_but_no_scores(tmp_path: Path):
    write_run(
        tmp_path / "a",
        groups=["common", "mislabeled", "rare"],
        about={"dataset": "own", "clients": {"id": list("abc")}},
    )
    path = tmp_path / "a/rounds.jsonl"
    path.write_text(path.read_text().replace('"identification": {', '"identification": null, "other": {'))
    told = judgements(find_runs([tmp_path]))
    assert (told.accused, told.f1, told.accused_rare) == ({"1": 1}, None, None)
