"""A real Slurm on this machine: the grid as an array of parts, and on workers that dask-jobqueue submits."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import missing, slurm
from tests.runs.test_jobs import SETTINGS, results, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("FEDPCA_SLOW"), reason="FEDPCA_SLOW is not set"),
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())} (Debian: slurm-wlm, munge)"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grid")
    (folder / "two.toml").write_text(SETTINGS)
    run(folder, "two.toml", "--out", "whole")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm(tmp_path_factory.mktemp("slurm")) as env:
        yield env


def test_an_array_of_parts(place: Path, environment: dict[str, str]):
    command = f"{sys.executable} -m fedpca run two.toml --out parts --part $SLURM_ARRAY_TASK_ID/3 --resume"
    words = ["sbatch", "--wait", "--array=1-3", "--output", "part-%a.txt", "--wrap", command]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, [path.read_text() for path in place.glob("part-*.txt")]
    assert results(place / "parts") == results(place / "whole")
    assert "part 1/3: 2 of 4 runs" in (place / "part-1.txt").read_text()


def test_workers_of_dask_jobqueue(place: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    """Two jobs with a worker each; the job of one is cancelled in the middle."""
    jobqueue = pytest.importorskip("dask_jobqueue")
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.chdir(place)
    own = {"cores": 1, "processes": 1, "memory": "1GB", "interface": "lo", "walltime": "00:10:00"}
    with jobqueue.SLURMCluster(**own, scheduler_options={"dashboard_address": "127.0.0.1:0"}) as cluster:
        cluster.scale(2)
        cluster.wait_for_workers(2, timeout=200)
        words = ["two.toml", "--out", "queue", "--dask", cluster.scheduler_address, "--set", "rounds=40"]
        process = subprocess.Popen([sys.executable, "-m", "fedpca", "run", *words], cwd=place, env=environment)
        deadline = time.monotonic() + 200
        while not list(place.glob("queue/*/*/rounds.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        jobs = subprocess.check_output(["squeue", "-h", "-o", "%i"], env=environment, text=True).split()
        subprocess.run(["scancel", "--signal=KILL", jobs[0]], env=environment, check=True)
        assert process.wait(300) == 0
    run(place, "two.toml", "--out", "longer", "--set", "rounds=40")
    assert len(jobs) == 2
    assert results(place / "queue") == results(place / "longer")
