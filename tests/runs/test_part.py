"""`--part I/N`: parts share nothing but a disk, and together are the experiment."""

import errno
import fcntl
from pathlib import Path

import pytest

import fedpca
from fedpca.atomic import LockedError, locked
from fedpca.errors import RunError, UserError
from fedpca.runs.part import Part, read_part
from tests.runs.test_jobs import SETTINGS, ended, results, started

SHORT = SETTINGS.replace("rounds = 12", "rounds = 2").replace("fedpca-d", "median")


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16])
def test_parts_are_disjoint_and_together_all(count: int):
    parts = [Part(number, count).of(range(11)) for number in range(1, count + 1)]
    assert sorted(run for part in parts for run in part) == list(range(11))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "a/b", "-1/3", "1/3/5", ""])
def test_what_is_no_part_is_refused(text: str):
    with pytest.raises(UserError, match=r"--part must be I/N with I from 1 to N, .*SLURM_ARRAY_TASK_ID"):
        read_part(text)


def test_parts_side_by_side_leave_what_one_command_leaves(tmp_path: Path):
    """Three at once, one of them with two of the four runs."""
    (tmp_path / "four.toml").write_text(SHORT)
    parts = [started(tmp_path, "four.toml", "--out", "parts", "--part", f"{part}/3", "--resume") for part in (1, 2, 3)]
    messages = [ended(process, 0) for process in parts]
    assert "part 1/3: 2 of 4 runs" in messages[0]
    assert sum("files: parts" in message for message in messages) >= 1  # the last one shows the tables of all
    fedpca.run(tmp_path / "four.toml", out=tmp_path / "whole", progress=False)
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    assert len(results(tmp_path / "whole")) == 4


def test_a_part_does_not_mind_what_other_parts_have_written(tmp_path: Path):
    (tmp_path / "four.toml").write_text(SHORT)
    call = {"experiment": tmp_path / "four.toml", "out": tmp_path / "runs", "progress": False}
    assert len(fedpca.run(**call, part="1/4").runs) == 1
    assert len(fedpca.run(**call, part="2/4").runs) == 2
    with pytest.raises(RunError, match="holds a run already"):
        fedpca.run(**call, part="2/4")
    assert len(fedpca.run(**call, part="7/9").runs) == 2  # more parts than runs: there is nothing to do


def test_a_held_lock_and_a_disk_without_locks_are_two_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with locked(tmp_path, "busy"), pytest.raises(LockedError, match="busy"), locked(tmp_path, "busy"):
        pass

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(RunError, match=r"cannot lock files .No locks available") as caught, locked(tmp_path, "busy"):
        pass
    assert not isinstance(caught.value, LockedError)
