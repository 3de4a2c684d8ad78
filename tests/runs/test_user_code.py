"""An exception of a user's own model or part is one message with the user's lines; others keep their whole trace."""

import re
import traceback
from pathlib import Path

import pytest
import torch

import fedpca
from fedpca.errors import UserError, failure_of
from fedpca.models.user_code import is_users_error
from fedpca.parts.client import train
from fedpca.runs.cell import cells
from fedpca.runs.check import check_experiment
from fedpca.runs.run import prepare, run_cell
from fedpca.runs.trial import try_out
from fedpca.settings.experiment import Experiment

OWN = '''
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedpca import base, method, one_stage

class Own(nn.Module):
    """Well in a trial of two images, and until it was trained for some time."""

    def __init__(self, classes, fails):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, classes)
        self.fails, self.batches = fails, 0

    def forward(self, x):
        seen = self.body(x.flatten(1)).sigmoid()
        self.batches += self.training
        is_late = self.batches > 30 and len(x) > 2
        if self.fails == "pass" and is_late and self.training:
            seen = deeper(seen)
        if self.fails == "test" and is_late and not self.training:
            raise LookupError("never tested")
        if self.fails == "at once" and len(x) > 2:
            raise LookupError("never seen")
        if self.fails == "numpy" and is_late:
            np.stack([np.zeros(2), np.zeros(3)])
        if self.fails == "memory" and is_late:
            torch.empty(10**15)
        logits = self.head(seen)
        if self.fails == "backward" and is_late and self.training:
            seen += 1  # which the gradient of the head needs as it was
        return logits[:, 1:] if self.fails == "classes" and is_late and self.training else logits

def deeper(seen):
    return seen @ torch.ones(7, 7)

def build(shape, classes, fails):
    return Own(classes, fails)

@dataclass(frozen=True)
class Judge:
    def __call__(self, diagnosis, reports, when):
        if when.round == 2:
            return {}["nobody"]
        return diagnosis

@dataclass(frozen=True)
class Report:
    def __call__(self, site):
        return {"loss": [][site.order.round]}

@method()
def judging(plan, settings):
    """A part on the server that breaks."""
    return one_stage(replace(base(plan), diagnose=Judge()))

@method()
def reporting(plan, settings):
    """A part on the client that breaks."""
    return one_stage(replace(base(plan), report=Report()))

@method()
def unbuilt(plan, settings):
    """What cannot even be built."""
    return one_stage(replace(base(plan), judge=Judge()))
'''


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_code.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "own_code", raising=False)


def with_model(small: Experiment, fails: str) -> Experiment:
    table = small.model_dump(mode="json", exclude_none=True)
    return check_experiment({**table, "model": {"name": "own_code:build", "args": {"fails": fails}}}, "own")


def play(experiment: Experiment, out: Path, workers: int = 1) -> None:
    (cell,) = cells(experiment, out)
    run_cell(cell, *prepare(experiment), workers, lambda cell, line: None)


def refusal(experiment: Experiment, out: Path, workers: int = 1) -> tuple[str, Exception]:
    with pytest.raises(UserError) as caught:
        play(experiment, out, workers)
    assert caught.value.code == 2
    assert "fedpca/" not in str(caught.value), "no frame of the package"
    assert isinstance(caught.value.__cause__, Exception)
    return str(caught.value), caught.value.__cause__


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pass_that_breaks_in_training(small: Experiment, tmp_path: Path, workers: int):
    experiment = with_model(small, "pass").model_copy(update={"rounds": 9})
    message, cause = refusal(experiment, tmp_path / "runs", workers)
    first, place, *lines = message.splitlines()
    assert re.match(r"fedavg seed 0: round \d failed: RuntimeError: mat1 and mat2 shapes cannot be multiplied", first)
    assert re.fullmatch(r"at client \d, while it trained in round \d", place)
    assert workers > 1 or place.endswith("round 2")
    files = [line for line in lines if line.startswith("  File ")]
    assert [line.rpartition(" in ")[2] for line in files] == ["forward", "deeper"]
    assert all("own_code.py" in line for line in files)
    assert any("train.py" in frame.filename for frame in traceback.extract_tb(cause.__traceback__)), "Python shows all"


@pytest.mark.parametrize(("fails", "why"), [("backward", "by an inplace operation"), ("classes", "out of bounds")])
def test_what_pytorch_says_of_a_model_when_no_file_of_the_user_is_on_the_way(
    small: Experiment, tmp_path: Path, fails: str, why: str
):
    message, _ = refusal(with_model(small, fails), tmp_path / "runs")
    assert "round 2 failed: " in message
    assert why in message
    assert "while it trained in round 2" in message


def test_a_test_that_breaks(small: Experiment, tmp_path: Path):
    message, _ = refusal(with_model(small, "test"), tmp_path / "runs")
    assert message.startswith("fedavg seed 0: the test after round 2 failed: LookupError: never tested\n")
    assert message.count("File ") == 1


def test_frames_of_libraries_are_left_out(small: Experiment, tmp_path: Path):
    message, _ = refusal(with_model(small, "numpy"), tmp_path / "runs")
    assert "all input arrays must have the same shape" in message
    assert message.count("File ") == message.count("own_code.py") == 1


def test_memory_that_runs_out_keeps_its_message(small: Experiment, tmp_path: Path):
    with pytest.raises(RuntimeError) as caught:
        play(with_model(small, "memory"), tmp_path / "runs")
    assert str(failure_of(caught.value)).startswith("out of memory")


@pytest.mark.parametrize(
    ("method", "first"),
    [
        ("judging", "own_code:judging seed 0: round 2 failed: KeyError: 'nobody'"),
        ("reporting", "own_code:reporting seed 0: round 1 failed: IndexError: list index out of range"),
        ("unbuilt", "method 'own_code:unbuilt': building it failed: TypeError: "),
    ],
)
def test_a_part_that_breaks(small: Experiment, tmp_path: Path, method: str, first: str):
    experiment = small.model_copy(update={"methods": (f"own_code:{method}",)})
    message, _ = refusal(experiment, tmp_path / "runs")
    assert message.startswith(first)
    assert message.count("own_code.py") == 1


def test_an_error_of_the_package_keeps_its_trace_and_says_whose_it_was(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(train, "params_of", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        play(with_model(small, "nothing"), tmp_path / "runs")
    assert any(note.startswith("at client 0, while it trained") for note in caught.value.__notes__)


def test_a_dry_run_says_the_same(small: Experiment, tmp_path: Path):
    experiment = with_model(small, "at once")
    with pytest.raises(UserError, match=r"a short trial failed: LookupError: never seen\n"):
        try_out(experiment, prepare(experiment)[1], 1)


def test_from_python_the_module_and_its_exception_are_found(tmp_path: Path):
    class Late(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and len(x) > 2:
                raise LookupError("not yet")
            return super().forward(x)

    clients = {name: (torch.rand(20, 4), torch.arange(20) % 2) for name in ("berlin", "bonn")}
    with pytest.raises(UserError, match=r"round 1 failed: LookupError: not yet\nat client berlin, while") as caught:
        fedpca.train(clients, Late(torch.nn.Linear(4, 2)), "fedavg", rounds=2, progress=False, workers=1)
    assert isinstance(caught.value.__cause__, LookupError)


def error_in(function, *given: object) -> Exception:
    try:
        function(*given)
    except Exception as error:
        return error
    raise AssertionError


def test_whose_an_error_is():
    ours = error_in(fedpca.build, "no such model", (1, 8, 8), 10, 0)
    assert not is_users_error(ours.with_traceback(ours.__traceback__.tb_next), own_model=True)
    theirs = error_in(lambda: 1 / 0)
    assert is_users_error(theirs)
    torchs = error_in(torch.nn.Linear(3, 3), torch.zeros(2))
    rest = torchs.with_traceback(torchs.__traceback__.tb_next)
    assert (is_users_error(rest), is_users_error(rest, own_model=True)) == (False, True)
