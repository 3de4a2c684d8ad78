"""A user's own model is tried out before it is trained; what goes wrong there is told with the user's lines alone."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from fedpca.errors import UserError, failure_of

FRAMES = 3  # of the user's own, in a message
NOT_THEIRS = (Path(__file__).parents[1], Path(torch.__file__).parent)  # whose frames tell a user nothing


@contextmanager
def trying(what: str) -> Iterator[None]:
    """An exception inside becomes one message: what was tried, where it failed in the user's files, and why."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if failure_of(error):
            raise
        raise UserError(f"{what} failed: {short_trace(error)}") from None


def short_trace(error: Exception) -> str:
    """The exception, and the last lines of the user's own files on the way to it."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(folder in Path(frame.filename).parents for folder in NOT_THEIRS)
    ]
    why = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([why, *map(str.rstrip, traceback.format_list(frames[-FRAMES:]))])


def trial_pass(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Puts two black images through a model, in the mode that it is in."""
    with trying(f"a trial of the model {type(module).__name__}, forward(images) with images of {(2, *shape)},"):
        logits = module(torch.zeros(2, *shape))
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(
            f"the model {type(module).__name__} must turn 2 images into a tensor (2, classes), one number for each "
            f"class, got {got}"
        )
