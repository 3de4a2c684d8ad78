"""What is near, and which exceptions a person can do something about."""

import errno

import numpy as np
import pytest
import torch

from fedpca.errors import (
    DataError,
    FailedError,
    RunError,
    SettingsError,
    UserError,
    WireError,
    failure_of,
    near,
    nearest,
)
from fedpca.methods.registry import method_names


@pytest.mark.parametrize(
    ("word", "meant"),
    [("fedavgg", "fedavg"), ("FedAvg", "fedavg"), ("medain", "median"), ("fedpcad", "fedpca-d"), ("hnob", "hnobs")],
)
def test_a_slip_of_the_pen_is_near(word: str, meant: str):
    assert near(word, method_names()) == meant
    assert nearest(word, method_names()) == f" (did you mean {meant!r}?)"


@pytest.mark.parametrize("word", ["xyz", "fedopt", "ditto", "feddyn", "d", ""])
def test_another_method_is_not_near_and_gets_the_list(word: str):
    assert near(word, method_names()) is None
    assert nearest(word, method_names()) == f"; there are {', '.join(method_names())}"


def test_a_part_of_a_name_is_near():
    assert near("quick", ["lite/fashion", "lite/quick"]) == "lite/quick"
    assert near("köln", ["Bonn", "Köln"]) == "Köln"
    assert nearest("x", []) == ""


def exception_of(allocate) -> Exception:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        allocate()
    return caught.value


def test_memory_that_runs_out_is_told_with_its_size_and_the_remedy():
    for error in (
        exception_of(lambda: torch.empty(10**15, dtype=torch.uint8)),
        exception_of(lambda: np.empty(10**17, dtype=np.uint8)),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1 GiB"),
        MemoryError(),
    ):
        failure = failure_of(error)
        assert isinstance(failure, FailedError)
        assert failure.code == 1
        assert "out of memory" in str(failure)
        assert "training.batch" in str(failure)
        assert "--workers" in str(failure)
        assert len(str(failure).splitlines()) == 1
    assert "931322.6 GiB" in str(failure_of(exception_of(lambda: torch.empty(10**15, dtype=torch.uint8))))
    assert "88.8 PiB" in str(failure_of(exception_of(lambda: np.empty(10**17, dtype=np.uint8))))
    assert "20.00 MiB" in str(failure_of(RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB.")))


def test_a_full_disk_is_told_with_its_place():
    failure = failure_of(OSError(errno.ENOSPC, "No space left on device", "runs/x"))
    assert "runs/x" in str(failure)
    assert "No space left on device" in str(failure)


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes cannot be multiplied"), OSError(errno.ENOENT, "no", "x"), UserError("x"), KeyError()]
)
def test_a_bug_stays_one(error: Exception):
    assert failure_of(error) is None


@pytest.mark.parametrize("kind", [UserError, SettingsError, RunError, DataError, WireError])
def test_no_message_forges_lines_on_a_screen(kind: type[UserError]):
    said = str(kind("there is no\x1b[2J 'a\r\u202eb'" + "x" * 100_000))
    assert said.startswith("there is no [2J 'a  b'")
    assert said.isprintable()
    assert len(said) <= 10_000
    lines = len(str(kind("one\ntwo")).splitlines())
    assert lines == (1 if issubclass(kind, DataError) else 2)  # a name in data may have a line break in it


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENAMETOOLONG, "choose a shorter name"), (errno.EACCES, "let this user"), (errno.EFBIG, "ulimit -f")],
)
def test_a_place_that_cannot_be_used_is_told_with_the_remedy(number: int, words: str):
    failure = failure_of(OSError(number, "cannot", "here/\nthere"))
    assert failure is not None
    assert words in str(failure)
    assert failure_of(OSError(errno.EPIPE, "a bug")) is None
