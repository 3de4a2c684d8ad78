"""Runs as tasks of a real Dask cluster: the bytes of one process, whatever dies, and errors that name what to do."""

import json
import time
from pathlib import Path

import pytest
from dask import config as dask_config

from fedpca.cluster import connect
from fedpca.cluster.connect import connected
from fedpca.cluster.grid import Grid
from fedpca.cluster.options import ClusterOptions, read_options
from fedpca.cluster.tasks import difference, shown_versions
from fedpca.errors import RunError, UserError
from fedpca.runs.cell import Cell, cells
from fedpca.runs.check import read_experiment
from fedpca.runs.folder import RoundLine
from tests.cluster.processes import LACKING, Dask
from tests.runs.test_jobs import ended, recorded, results, started, until


def test_a_worker_killed_in_the_middle_changes_no_byte(place: Path, cluster: Dask):
    """First on a shared disk, from the command line, killed for good while both workers are within a run."""
    cluster.have_workers(2)
    (place / "hold").touch()
    process = started(place, "own.toml", "--out", "shared", "--dask", cluster.file)
    until(lambda: sum(recorded(path.parent) >= 2 for path in place.glob("shared/*/*/rounds.jsonl")) == 2, process)
    cluster.workers[0].kill()
    (place / "hold").unlink()
    message = ended(process, 0)
    assert "2 workers, which write the run folders" in message
    assert all(f"seed {seed} round 12/12: ACC worst " in message for seed in (0, 1))
    assert results(place / "shared") == results(place / "whole")
    assert not list((place / "shared").glob(".dask*"))


def test_without_a_shared_disk_a_worker_killed_in_the_middle_changes_no_byte(
    place: Path, cluster: Dask, monkeypatch: pytest.MonkeyPatch
):
    """Every round is sent; the run goes on elsewhere from the last one that was."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    cluster.have_workers(2)
    todo = cells(read_experiment(place / "own.toml"), place / "stream")
    rounds: list[tuple[str, int]] = []

    def watch(cell: Cell, line: RoundLine) -> None:
        rounds.append((cell.name, line["round"]))
        if len(rounds) == 7:
            cluster.workers[0].kill()

    with connected(ClusterOptions(cluster.file, disk="stream"), place / "stream", print) as link:
        Grid(link, None, None, seconds=0.0).play(todo, watch)
    assert results(place / "stream") == results(place / "whole")
    assert sorted(rounds) == sorted((cell.name, number) for cell in todo for number in range(1, 13))
    assert not list(place.glob("fedpca-*"))


def test_what_is_missing_at_a_worker_is_said_in_one_line(place: Path, cluster: Dask, monkeypatch: pytest.MonkeyPatch):
    here = shown_versions()
    monkeypatch.setattr(connect, "shown_versions", lambda: here | {"fedpca": "9.0"})
    with pytest.raises(UserError, match=r"worker tcp://\S+ has fedpca \S+, but here it is fedpca 9.0: install"):
        enter(cluster.file, place)
    monkeypatch.undo()
    cluster.start_worker(code=LACKING)
    with pytest.raises(UserError, match=r"the Dask worker \S+ cannot import fedpca .*pip install 'fedpca\[dask\]=="):
        enter_until_refused(cluster.file, place)
    cluster.workers.pop().kill()


def enter(address: str, out: Path) -> None:
    with connected(ClusterOptions(address), out, print):
        pass


def enter_until_refused(address: str, out: Path) -> None:
    for _ in range(300):  # until the worker has joined
        enter(address, out)
        time.sleep(0.1)


def test_nobody_at_the_address(place: Path):
    with dask_config.set({"distributed.comm.timeouts.connect": "200ms"}), pytest.raises(RunError) as caught:
        enter("tcp://127.0.0.1:9", place)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("no Dask scheduler answers at tcp://127.0.0.1:9 (")
    assert "check that it runs" in line


def test_a_build_of_the_same_version_is_the_same(monkeypatch: pytest.MonkeyPatch):
    here = {"torch": "2.13.0", "fedpca": "0.2.0"}
    assert difference(here, dict(here)) == ""
    assert difference(here, {"torch": "2.12.0", "fedpca": "0.2.0"}).startswith(
        "has torch 2.12.0, but here it is torch 2.13.0"
    )
    assert "+" not in json.dumps(shown_versions())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dask": "here"}, "--dask must be a scheduler's address such as"),
        ({"dask": "local:0"}, "--dask must be"),
        ({"dask": "local:2", "disk": "tape"}, "--dask-disk must be shared or stream, got 'tape'"),
        ({"dask": "local:2", "per_run": "GPU"}, "--dask-per-run must be NAME=AMOUNT"),
        ({"dask": "local:2", "per_run": "GPU=0"}, "--dask-per-run must be NAME=AMOUNT"),
        ({"dask": "local:2", "spread": "runs"}, "--spread must be clients, got 'runs'"),
        ({"dask": "local:2", "jobs": 2}, "--jobs 2 plays runs in processes of this machine"),
        ({"dask": None, "spread": "clients"}, "--spread clients says how a Dask cluster is used"),
    ],
)
def test_options_that_cannot_be(given: dict[str, object], words: str):
    with pytest.raises(UserError, match=words):
        read_options(**given)


def test_options_that_can_be():
    assert read_options(None) is None
    assert read_options("local:4").local == 4
    assert read_options("tls://scheduler.cluster.local:8786").local is None
    assert read_options("10.0.0.1:8786", per_run="GPU=1, cores=4").per_run == {"GPU": 1, "cores": 4}
