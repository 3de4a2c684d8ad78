"""Runs on a table of numbers: every kind of method, the same bits however it is played, results and page."""

import json
from math import isfinite
from pathlib import Path

import pytest

from fedpca.results.page.page import write_page
from fedpca.results.read.runs import find_runs
from fedpca.runs import folder as record
from tests.data.test_number_tables import experiment, rows_of, write_csv
from tests.runs.test_run import rounds, run, same_run

METHODS = ("fedavg", "fedpca-hs-auto", "fedpca-d", "rfa", "qfedavg", "fedism", "fedcorr", "fednoro", "fedce+rfa")
SHORT = {"method": {"fedpca-hs-auto": {"warmup": 2}, "fedpca-d": {"warmup": 2}}}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "hospitals.csv", rows_of(240))


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_training_learns_what_the_numbers_say(table: Path, tmp_path: Path, model: str):
    settings = experiment(table, model={"name": model}, training={"lr": 0.1, "batch": 16})
    cell = run(settings.model_copy(update={"rounds": 30}), tmp_path / "runs")
    (*_, last) = rounds(cell.folder)
    assert min(scores["acc"] for scores in last["groups"].values()) > 0.8
    about = json.loads((cell.folder / record.ABOUT).read_text())
    assert [column["name"] for column in about["table"]] == ["age", "pain", "ca"]
    assert about["shape"] == [6, 1, 1]  # age; pain: two levels and missing; ca and missing


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_method(table: Path, tmp_path: Path, method: str):
    own = {name: settings for name, settings in SHORT["method"].items() if name == method}
    settings = experiment(table, evaluation={"features": 5}, method=own)
    cell = run(settings.model_copy(update={"methods": (method,), "rounds": 12}), tmp_path / "runs")
    lines = rounds(cell.folder)
    assert len(lines) == 12
    assert not any(line["left_out"] for line in lines)
    if method.startswith("fedpca"):
        assert all(isfinite(value) for value in lines[-1]["clients"]["dispersion"])


def test_workers_do_not_change_a_byte(table: Path, tmp_path: Path):
    settings = experiment(table)
    one, three = (run(settings, tmp_path / str(workers), workers) for workers in (1, 3))
    assert same_run(one.folder, three.folder)


def test_page(table: Path, tmp_path: Path):
    run(experiment(table, **SHORT).model_copy(update={"methods": ("fedpca-hs-auto",), "rounds": 6}), tmp_path / "runs")
    text = write_page(find_runs([tmp_path / "runs"]))
    assert "east" in text
    assert "hospitals" in text
