"""A user's own model is tried out before it is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedpca.errors import UserError
from fedpca.models.user_code import trying


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
