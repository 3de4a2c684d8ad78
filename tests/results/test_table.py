import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fedpca.faults import RunError
from fedpca.results.runs import find_runs
from fedpca.results.table import as_csv, as_rich, tabulate
from fedpca.scenario import check_experiment, write_experiment


def line(number: int, common: float, rare: float, shares: dict | None) -> dict:
    groups = {g: {"acc": v, "bacc": v, "auc": v, "auc_ovo": v} for g, v in (("common", common), ("rare", rare))}
    return {"round": number, "groups": groups, "weights": shares}


def write_run(
    folder: Path, seed: int, values: list[tuple[float, float]], rounds: int = 2, shares=None, **tables: object
):
    settings = check_experiment({"name": "made", "rounds": rounds, "seeds": [seed], **tables}, "made")
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(write_experiment(settings.cell("fedavg", seed)))
    about = {"dataset": "digits", "clients": {"id": ["0", "1"]}, "rare": ["1"], "mislabeled": []}
    (folder / "about.json").write_text(json.dumps(about))
    lines = [line(i + 1, *pair, shares) for i, pair in enumerate(values)]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))


def text(results) -> str:
    console = Console(width=140, file=io.StringIO())
    console.print(as_rich(results))
    return console.file.getvalue()


def test_seeds_are_pooled_as_the_specification_says(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.80, 0.70)], rounds=1)
    write_run(tmp_path / "b", 1, [(0.82, 0.84)], rounds=1)
    (results,) = tabulate(find_runs([tmp_path]))
    (row,) = results.rows
    assert row.acc.worst.mean == pytest.approx(77)
    assert row.acc.average.mean == pytest.approx(79)
    assert row.acc.std.mean == pytest.approx(3)
    assert row.seeds == 2
    assert row.weight is None
    assert "77.00 ± 7.00" in text(results)
    assert "made: digits, 2 clients, 1 rare, 1 rounds" in text(results)


def test_only_the_last_five_rounds_count(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.0, 0.0)] * 3 + [(0.9, 0.8)] * 5, rounds=8)
    assert tabulate(find_runs([tmp_path]))[0].rows[0].acc.worst.mean == pytest.approx(80)


def test_weights_are_averaged_over_all_rounds(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.9, 0.8)] * 2, shares={"rare": 0.1, "mislabeled": 0.2})
    results = tabulate(find_runs([tmp_path]))[0]
    assert results.rows[0].weight == pytest.approx(0.08)
    assert "0.0800" in text(results)


def test_other_scenarios_get_tables_of_their_own(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.9, 0.8)])
    write_run(tmp_path / "b", 0, [(0.9, 0.7)], noise={"clients": 0.2, "labels": 1.0})
    assert len(tabulate(find_runs([tmp_path]))) == 2


def test_runs_under_way_are_marked_and_a_line_being_written_is_passed_over(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.9, 0.8)], rounds=5)
    with (tmp_path / "a/rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "gr')
    (results,) = tabulate(find_runs([tmp_path]))
    assert results.rows[0].unfinished == 1
    assert "not finished" in text(results)


def test_csv_has_full_precision(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.9, 1 / 3)])
    (row,) = csv.DictReader(io.StringIO(as_csv(tabulate(find_runs([tmp_path])))))
    assert float(row["worst_acc"]) == pytest.approx(100 / 3, abs=1e-9)
    assert row["method"] == "fedavg"


def test_folders_without_runs_are_named(tmp_path: Path):
    with pytest.raises(RunError, match="no folder"):
        find_runs([tmp_path / "absent"])
    with pytest.raises(RunError, match="no run with a finished round"):
        find_runs([tmp_path])
