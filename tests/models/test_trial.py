"""A user's own model that does not fit is refused in a few lines, those of the user's own file."""

import pytest

from fedpca.errors import UserError
from fedpca.models.build import build

MODELS = """
import torch
from torch import nn

def one_argument(shape):
    return nn.Linear(3, 3)

def named(*, channels):
    return nn.Linear(3, 3)

def _size(shape):
    return shape["height"]

def breaks(shape, classes):
    return nn.Linear(_size(shape), classes)

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 3)

    def forward(self, x, mask):
        return self.head(x.flatten(1))

class Wrong(Two):
    def forward(self, x):
        return self.head(x)

class Pair(Two):
    def forward(self, x):
        return self.head(x.flatten(1)), x

class Image(Two):
    def forward(self, x):
        self.head(x.flatten(1))
        return x

class Hungry(Two):
    def forward(self, x):
        return torch.empty(10**15)

def two(shape, classes):
    return Two()

def wrong(shape, classes):
    return Wrong()

def pair(shape, classes):
    return Pair()

def image(shape, classes):
    return Image()

def hungry(shape, classes):
    return Hungry()
"""


@pytest.fixture(autouse=True)
def _models(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tried_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)


def refusal(name: str) -> str:
    with pytest.raises(UserError) as caught:
        build(f"tried_models:{name}", (1, 8, 8), 3, seed=0)
    return str(caught.value)


@pytest.mark.parametrize("name", ["one_argument", "named"])
def test_a_factory_with_another_signature(name: str):
    message = refusal(name)
    assert f"model 'tried_models:{name}' is called as (shape, classes), but takes (" in message
    assert len(message.splitlines()) == 1


def test_a_factory_that_breaks_comes_with_the_users_lines_alone():
    message = refusal("breaks")
    assert "TypeError: tuple indices must be integers" in message
    assert 'tried_models.py", line 12, in _size\n    return shape["height"]' in message
    assert "in breaks" in message
    assert "build.py" not in message


def test_a_forward_with_another_signature():
    message = refusal("two")
    assert "a trial of the model Two, forward(images) with images of (2, 1, 8, 8), failed: TypeError: " in message
    assert "missing 1 required positional argument: 'mask'" in message
    assert len(message.splitlines()) == 1


def test_a_forward_that_breaks_comes_with_the_users_lines_alone():
    message = refusal("wrong")
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in message
    assert "in forward\n    return self.head(x)" in message
    assert message.count("File ") == 1


@pytest.mark.parametrize(("name", "got"), [("pair", "got tuple"), ("image", "got shape (2, 1, 8, 8)")])
def test_a_forward_that_gives_no_logits(name: str, got: str):
    message = refusal(name)
    assert "must turn 2 images into a tensor (2, classes)" in message
    assert got in message


def test_memory_that_runs_out_in_a_trial_is_no_error_of_the_model():
    with pytest.raises(RuntimeError, match="allocate"):
        build("tried_models:hungry", (1, 8, 8), 3, seed=0)
