"""Runs side by side in processes: the same bytes as one after another, and no process left behind."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedpca.errors import RunError
from fedpca.runs import folder as record
from fedpca.runs.cell import Cell, cells, cells_of_all, is_done
from fedpca.runs.check import read_experiment, read_settings
from fedpca.runs.folder import locked_run
from fedpca.runs.jobs import default_workers
from fedpca.runs.processes import _child_environment, play_in_processes
from fedpca.settings.experiment import Experiment
from tests.unmeasured import unmeasured

SETTINGS = """
rounds = 12
seeds = [0, 1]
methods = ["fedavg", "fedpca-d"]
[data]
clients = 6
train_images = 240
test_images = 100
[model]
name = "mlp"
[rare]
share = 0.17
[noise]
clients = 0.17
labels = 0.8
"""
SEVERAL = f"""{SETTINGS}
[setting."rho=.17 eta=.8"]
[setting."rho=.33 eta=1"]
noise = {{clients = 0.33, labels = 1.0}}
methods = ["fedavg"]
"""
# a model that waits, fails or dies when a file says so (`hold` after 40 passes, `fail`, `crash` and `die` at once) and
# leaves a file that tells who built it, with how many threads for a kernel
MODEL = """
import itertools, multiprocessing, os, pathlib, signal, time
from torch import nn

passes = itertools.count()

class Mine(nn.Sequential):
    def forward(self, x):
        while os.path.exists("hold") and next(passes) > 40:
            time.sleep(0.01)
        if os.path.exists("fail"):
            raise ZeroDivisionError("the model's own fault")
        if os.path.exists("crash"):
            raise BaseException("nobody's fault")
        if os.path.exists("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

def build(shape, classes):
    who = "built-by-child" if multiprocessing.parent_process() else "built-by-parent"
    pathlib.Path(who).write_text(os.environ.get("OMP_NUM_THREADS", "any"))
    return Mine(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))
"""
PATIENCE = 120  # seconds, of which a healthy run needs few: only a hang takes so long


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "two.toml").write_text(SETTINGS)
    (tmp_path / "several.toml").write_text(SEVERAL)
    (tmp_path / "own.toml").write_text(SETTINGS.replace('"mlp"', '"mine:build"'))
    (tmp_path / "long.toml").write_text((tmp_path / "own.toml").read_text().replace("rounds = 12", "rounds = 100000"))
    return read_experiment(tmp_path / "two.toml")


def started(folder: Path, *words: object) -> subprocess.Popen[str]:
    """`fedpca run` in that folder, in a process group of its own, as a shell gives it to a command."""
    command = [sys.executable, "-m", "fedpca", "run", *map(str, words)]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=unmeasured(), text=True, start_new_session=True, **pipe)


def ended(process: subprocess.Popen[str], code: int) -> str:
    """What it said on stderr once it had said how it works; a hang or another exit code is an error.

    So is an orphan that keeps stderr open.
    """
    try:
        _, message = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code, message
    return re.sub(r"\A\d+ clients; .*\n", "", message)


def run(folder: Path, *words: object, code: int = 0) -> str:
    return ended(started(folder, *words), code)


def until(happened: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Returns as soon as it has happened; an error if the process ends before, or patience does."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


def recorded(folder: Path) -> int:
    path = folder / record.ROUNDS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def results(out: Path) -> dict[str, list[object]]:
    """All that the runs below a folder have come to, but for the time it took."""
    found = {}
    for folder in sorted(path.parent for path in out.rglob(record.SUMMARY)):
        lines = (folder / record.ROUNDS).read_text().splitlines()
        texts = [*lines, (folder / record.SUMMARY).read_text()]
        tables = [{key: value for key, value in json.loads(text).items() if key != "seconds"} for text in texts]
        whole = [(folder / name).read_bytes() for name in (record.FINAL, record.SETTINGS, record.ABOUT)]
        found[str(folder.relative_to(out))] = [*tables, *whole]
    return found


def free(folder: Path) -> bool:
    """Whether no process holds any of the run folders."""
    try:
        for path in folder.rglob(".lock"):
            with locked_run(path.parent):
                pass
    except RunError:
        return False
    return True


def test_jobs_do_not_change_a_byte(experiment: Experiment, tmp_path: Path):
    run(tmp_path, "two.toml", "--out", "one")
    message = run(tmp_path, "two.toml", "--out", "two", "--jobs", 2)
    assert len(results(tmp_path / "one")) == 4
    assert results(tmp_path / "two") == results(tmp_path / "one")
    for cell in cells(experiment, tmp_path):  # without a terminal, one line per run
        assert f"{cell.method} seed {cell.seed} round 12/12: ACC worst " in message
    assert "4 of 4 runs" in run(tmp_path, "two.toml", "--out", "two", "--jobs", 2, "--resume")


def test_settings_side_by_side_are_each_their_own_federation(experiment: Experiment, tmp_path: Path):
    """The processes change from one setting to the other and back; a federation kept too long would show."""
    message = run(tmp_path, "several.toml", "--out", "two", "--jobs", 2)
    todo = cells_of_all(read_settings(tmp_path / "several.toml"), tmp_path / "two")
    assert len(results(tmp_path / "two")) == len(todo) == 6
    for cell in todo:
        assert f"{cell.setting}: {cell.method} seed {cell.seed} round 12/12: ACC worst " in message
    run(tmp_path, "several.toml", "--out", "one")
    assert results(tmp_path / "one") == results(tmp_path / "two")
    run(tmp_path, "two.toml", "--set", "name=several", "--out", "plain")
    plain = results(tmp_path / "plain")
    for place, files in results(tmp_path / "two" / "rho=.17 eta=.8").items():
        *same, about = plain[place]
        assert files[:-1] == same
        assert json.loads(files[-1]) == {"setting": "rho=.17 eta=.8", **json.loads(about)}


def test_more_jobs_than_runs(experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run(tmp_path, "own.toml", "--seed", 0, "--out", "two", "--jobs", 9)
    assert list(results(tmp_path / "two")) == ["fedavg/seed-0", "fedpca-d/seed-0"]
    assert (tmp_path / "built-by-child").read_text() == "1"
    assert (tmp_path / "built-by-parent").read_text() == "any"


def test_ctrl_c_ends_every_process_and_resume_goes_on_to_the_same_bytes(experiment: Experiment, tmp_path: Path):
    run(tmp_path, "own.toml", "--out", "whole")
    (tmp_path / "hold").touch()  # so that it is stopped in the middle, however fast it is
    process = started(tmp_path, "own.toml", "--out", "cut", "--jobs", 2)
    first, second, *_ = [cell.folder for cell in cells(experiment, tmp_path / "cut")]
    until(lambda: recorded(first) >= 2 and recorded(second) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)  # to all of them, as a terminal does
    message = ended(process, 130)
    assert "stopped; the same command with --resume goes on from the last checkpoint" in message
    assert "Traceback" not in message
    assert "KeyboardInterrupt" not in message
    assert free(tmp_path / "cut")
    assert 2 <= recorded(first) < 12
    assert 2 <= recorded(second) < 12
    (tmp_path / "hold").unlink()
    run(tmp_path, "own.toml", "--out", "cut", "--jobs", 2, "--resume")
    assert results(tmp_path / "cut") == results(tmp_path / "whole")


@pytest.mark.parametrize("moment", [0.0, 1.0])
def test_ctrl_c_while_processes_start_leaves_no_trace(experiment: Experiment, tmp_path: Path, moment: float):
    """The parent tries the model just before it starts the others, which then import for a second or two."""
    process = started(tmp_path, "long.toml", "--jobs", 2)
    until((tmp_path / "built-by-parent").exists, process)
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGINT)
    message = ended(process, 130)
    assert message.startswith("stopped; ")
    assert "Traceback" not in message


def test_no_process_outlives_a_killed_parent(experiment: Experiment, tmp_path: Path):
    """SIGKILL gives the parent no chance to end the others: they must notice by themselves, also within a round."""
    (tmp_path / "hold").touch()
    process = started(tmp_path, "long.toml", "--out", "cut", "--jobs", 2)
    first, second, *_ = [cell.folder for cell in cells(experiment, tmp_path / "cut")]
    until(lambda: recorded(first) >= 2 and recorded(second) >= 2, process)
    assert not free(tmp_path / "cut")
    process.kill()
    message = ended(process, -signal.SIGKILL)  # waits until nobody has its stderr open
    assert free(tmp_path / "cut")
    assert "Traceback" not in message


def test_a_process_that_is_killed_ends_the_experiment_with_a_message(experiment: Experiment, tmp_path: Path):
    process = started(tmp_path, "long.toml", "--out", "cut", "--jobs", 2)
    first, second, *_ = [cell.folder for cell in cells(experiment, tmp_path / "cut")]
    until(lambda: recorded(first) >= 2 and recorded(second) >= 2, process)
    (tmp_path / "die").touch()
    message = ended(process, 2)
    assert message.startswith("fedpca: a worker process died by signal 9")
    assert "seed 0" in message
    assert "--resume goes on" in message
    assert "Traceback" not in message
    assert free(tmp_path / "cut")


def test_one_killed_process_does_not_leave_the_others_running(experiment: Experiment, tmp_path: Path):
    settings = experiment.model_copy(update={"rounds": 100000})
    todo = cells(settings, tmp_path / "cut")

    def kill_one(cell: Cell, line: record.RoundLine) -> None:
        if cell is todo[1]:
            multiprocessing.active_children()[0].kill()

    with pytest.raises(RunError, match=r"a worker process died by signal 9 .* seed 0: --resume goes on"):
        play_in_processes(todo, 2, {"": 1}, None, kill_one)
    assert not multiprocessing.active_children()
    assert free(tmp_path / "cut")


def test_a_fault_that_the_user_can_mend_reads_as_with_one_job(experiment: Experiment, tmp_path: Path):
    """The second run cannot be played; the first would go on for hours."""
    taken = cells(experiment, Path("cut"))[1].folder
    with locked_run(tmp_path / taken):
        message = run(tmp_path, "long.toml", "--out", "cut", "--jobs", 2, code=2)
    assert message == f"fedpca: {taken} is being written by another process\n"
    assert free(tmp_path / "cut")


def message_after(cause: str, code: int, experiment: Experiment, tmp_path: Path) -> str:
    """What two processes end with when a model does something after two rounds."""
    process = started(tmp_path, "long.toml", "--out", "cut", "--jobs", 2)
    first = cells(experiment, tmp_path / "cut")[0].folder
    until(lambda: recorded(first) >= 2, process)
    (tmp_path / cause).touch()
    message = ended(process, code)
    assert free(tmp_path / "cut")
    return message


def test_an_exception_in_a_process_comes_with_its_trace(experiment: Experiment, tmp_path: Path):
    message = message_after("crash", 1, experiment, tmp_path)
    assert message.startswith("Traceback (most recent call last):")
    assert "mine.py" in message
    assert message.endswith("BaseException: nobody's fault\n")
    assert message.count("Traceback") == 1


def test_an_exception_of_the_users_model_in_a_process_is_one_message(experiment: Experiment, tmp_path: Path):
    message = message_after("fail", 2, experiment, tmp_path)
    assert re.match(r"fedpca: .* failed: ZeroDivisionError: the model's own fault\n", message)
    assert "mine.py" in message
    assert "Traceback" not in message
    assert "processes.py" not in message


def test_processes_share_the_cores(experiment: Experiment, federation):
    cores = default_workers(experiment, federation)
    assert default_workers(experiment, federation, jobs=2) == max(1, cores // 2)
    assert default_workers(experiment, federation, jobs=10000) == 1


def test_threads_that_the_user_sets_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with _child_environment():
        assert os.environ["OMP_NUM_THREADS"] == "3"
    assert os.environ["OMP_NUM_THREADS"] == "3"


def test_jobs_must_be_at_least_one(experiment: Experiment, tmp_path: Path):
    assert "--jobs" in run(tmp_path, "two.toml", "--jobs", 0, code=2)
    assert not any(is_done(cell) for cell in cells(experiment, tmp_path / "runs/two"))
