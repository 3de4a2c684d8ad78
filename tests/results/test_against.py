"""Paired differences between methods."""

import csv
import io
from pathlib import Path

import pytest

from fedpca.errors import UserError
from fedpca.results.read.differences import difference
from fedpca.results.read.runs import find_runs
from fedpca.results.tables.against import with_against
from fedpca.results.tables.plain import as_csv, as_json
from fedpca.results.tables.rows import Results, tabulate
from fedpca.results.tables.sheets import for_pages, for_terminal, overview
from tests.results.test_rows import write_run

AVG, MEDIAN = [(0.9, 0.70), (0.9, 0.60), (0.9, 0.80)], [(0.9, 0.72), (0.9, 0.63), (0.9, 0.84)]


def write_seeds(folder: Path, method: str, pairs: list[tuple[float, ...]], **more: object) -> None:
    for seed, pair in enumerate(pairs):
        write_run(folder / f"{method}-{seed}", seed, [pair], rounds=1, method=method, **more)


def against(folder: Path, method: str) -> list[Results]:
    runs = find_runs([folder])
    return with_against(tabulate(runs), runs, method)


def test_differences_are_taken_seed_by_seed_with_students_interval(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", AVG)
    write_seeds(tmp_path, "median", MEDIAN)
    (results,) = against(tmp_path, "fedavg")
    gain = results.against.differences["median"]["worst_acc"]
    assert (gain.mean, gain.std, gain.seeds) == (pytest.approx(3), pytest.approx(1), 3)
    half = 4.302653 / 3**0.5  # t of 97.5 % with two degrees of freedom
    assert (gain.low, gain.high) == (pytest.approx(3 - half, abs=1e-4), pytest.approx(3 + half, abs=1e-4))
    assert results.against.differences["median"]["average_acc"].mean == pytest.approx(1.5)
    assert list(results.against.differences) == ["median"], "a method is not compared with itself"


def test_only_seeds_of_both_count(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", AVG)
    write_seeds(tmp_path, "median", MEDIAN[:2])
    (results,) = against(tmp_path, "median")
    gain = results.against.differences["fedavg"]["worst_acc"]
    assert (gain.mean, gain.seeds) == (pytest.approx(-2.5), 2)


def test_the_worst_group_is_each_methods_own(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", [(0.9, 0.7)])
    write_seeds(tmp_path, "median", [(0.6, 0.8)])
    (results,) = against(tmp_path, "fedavg")
    assert results.against.differences["median"]["worst_acc"].mean == pytest.approx(-10)


def test_only_test_groups_of_all_runs_count(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", [(0.9, 0.2)])
    write_seeds(tmp_path, "median", [(0.8,)])  # did not test the rare group
    (results,) = against(tmp_path, "fedavg")
    gains = results.against.differences["median"]
    assert (gains["worst_acc"].mean, gains["average_acc"].mean) == (pytest.approx(-10), pytest.approx(-10))


def test_a_method_alone_is_compared_with_nobody(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", AVG)
    sheet = for_terminal(against(tmp_path, "fedavg"))[-1]
    assert sheet.lines == ()
    assert sheet.notes == ("No other method has a seed and a test group in common with fedavg.",)


def test_one_seed_has_no_interval():
    gain = difference([2.0])
    assert (gain.mean, gain.std, gain.low, gain.high, gain.seeds) == (2.0, None, None, None, 1)


def test_tables_csv_and_json_have_the_differences(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", AVG)
    write_seeds(tmp_path, "median", MEDIAN)
    tables = against(tmp_path, "fedavg")
    for sheets in (for_terminal(tables), for_pages(tables)):
        (sheet,) = [sheet for sheet in sheets if sheet.title.startswith("Minus fedavg, seed by seed; made: digits")]
        (line,) = sheet.lines
        assert line.method == "median"
        assert line.cells[0] == "+3.00 [+0.52, +5.48]"
        assert "95 % interval" in sheet.notes[0]
    base, median = csv.DictReader(io.StringIO(as_csv(tables)))
    assert (base["against"], base["worst_acc_gain"]) == ("", "")
    assert (median["against"], median["worst_acc_gain_seeds"]) == ("fedavg", "3")
    assert float(median["worst_acc_gain_low"]) == pytest.approx(3 - 4.302653 / 3**0.5, abs=1e-4)
    assert as_json(tables)[0]["against"]["differences"]["median"]["worst_acc"]["seeds"] == 3


def test_a_method_that_is_not_there_or_there_twice_is_named(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", AVG)
    with pytest.raises(UserError, match=r"--against fedavk: none of these runs .*did you mean 'fedavg'"):
        against(tmp_path, "fedavk")
    for q in (1.0, 3.0):
        write_seeds(tmp_path / f"{q}", "fedpca-d", AVG, settings={"fedpca-d": {"q": q, "warmup": 0}})
    with pytest.raises(UserError, match=r"there are 'fedpca-d \(warmup=0, q=1.0.*name one of them in full"):
        against(tmp_path, "fedpca-d")


def test_a_scenario_without_the_method_has_no_such_table(tmp_path: Path):
    write_seeds(tmp_path, "fedavg", AVG)
    write_seeds(tmp_path / "other", "median", MEDIAN, model={"name": "mlp"})
    first, second = against(tmp_path, "fedavg")
    assert first.against is not None
    assert second.against is None


def test_deviations_over_seeds_where_asked_for(tmp_path: Path):
    for seed, (early, late) in enumerate([(0.4, 0.6), (0.5, 0.7), (0.6, 0.8)]):
        write_run(tmp_path / f"{seed}", seed, [(0.9, early), (0.9, late)], rounds=2)
    runs = find_runs([tmp_path])
    (mixed,), (seeds,) = tabulate(runs), tabulate(runs, "seeds")
    worst = seeds.rows[0].scores["acc"].worst
    assert (worst.mean, worst.std) == (pytest.approx(60), pytest.approx(10)), "of 50, 60 and 70, with n - 1"
    assert mixed.rows[0].scores["acc"].worst.std == pytest.approx(12.909944), "of six values"
    assert "over the last 5 tested rounds of every seed" in overview(mixed).notes[0]
    assert "deviation (n - 1) over the seeds, of each seed's mean over the last 5" in overview(seeds).notes[0]


def test_one_seed_has_no_deviation_over_seeds(tmp_path: Path):
    write_run(tmp_path / "a")
    tables = tabulate(find_runs([tmp_path]), "seeds")
    assert overview(tables[0]).lines[0].cells[0].std is None
    assert as_json(tables)[0]["rows"][0]["acc"]["worst"]["std"] is None
    (line,) = csv.DictReader(io.StringIO(as_csv(tables)))
    assert line["worst_acc_spread"] == ""
