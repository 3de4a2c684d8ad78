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
    with pytest.raises(RunError, match="no run with a tested round"):
        find_runs([tmp_path])


def test_a_method_under_other_settings_has_a_row_of_its_own(tmp_path: Path):
    for name, q in (("a", 1.0), ("b", 3.0)):
        folder = tmp_path / name
        settings = check_experiment(
            {"name": "made", "rounds": 20, "methods": ["fedpca-d"], "method": {"fedpca-d": {"q": q}}}, "made"
        )
        write_run(folder, 0, [(0.9, q / 10)])
        (folder / "settings.toml").write_text(write_experiment(settings.cell("fedpca-d", 0)))
    (results,) = tabulate(find_runs([tmp_path]))
    assert [(row.method, row.seeds) for row in results.rows] == [("fedpca-d", 1), ("fedpca-d (q=3.0)", 1)]


def test_the_same_run_twice_is_refused(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.9, 0.8)])
    write_run(tmp_path / "b", 0, [(0.9, 0.8)])
    with pytest.raises(RunError, match="hold the same run"):
        find_runs([tmp_path])


def test_foreign_and_broken_folders(tmp_path: Path):
    write_run(tmp_path / "good", 0, [(0.9, 0.8)])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/settings.toml").write_text("")
    assert len(find_runs([tmp_path])) == 1
    (tmp_path / "good/about.json").write_text("{")
    with pytest.raises(RunError, match="good cannot be read"):
        find_runs([tmp_path])


def test_a_run_without_a_tested_round_is_not_shown_yet(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.9, 0.8)])
    lines = (tmp_path / "a/rounds.jsonl").read_text()
    (tmp_path / "a/rounds.jsonl").write_text(json.dumps({**json.loads(lines), "groups": None}) + "\n")
    with pytest.raises(RunError, match="no run with a tested round"):
        find_runs([tmp_path])


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_the_table_fits_its_terminal(tmp_path: Path, width: int):
    write_run(tmp_path / "a", 0, [(0.9, 0.8)])
    (results,) = tabulate(find_runs([tmp_path]))
    console = Console(width=width, file=io.StringIO())
    console.print(as_rich(results, width))
    shown = console.file.getvalue()
    assert "fedavg" in shown
    assert "80.00 ± 0.00" in shown
    assert "…" not in shown
