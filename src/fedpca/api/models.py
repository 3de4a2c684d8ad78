"""A model that is given as a name, as a module or as a function, ready for federated training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import nn

from fedpca.core import Net
from fedpca.data.federation import Federation
from fedpca.errors import UserError
from fedpca.models.build import as_net, build_model, draw, last_linear, require_arguments, with_tap
from fedpca.models.pretrained import weights_of
from fedpca.models.trial import trial_pass
from fedpca.settings.experiment import Experiment

Model: TypeAlias = str | nn.Module | Callable[..., nn.Module]  # a function of the shape and the number of classes
MakeNet = Callable[[str], Net]  # of a device


def name_of(model: Model) -> str:
    """What the run folder says of a model: its name, or where its code lies."""
    if isinstance(model, str):
        return model
    if not callable(model):
        raise UserError(f"model must be a name, an nn.Module or a function (shape, classes), got {model!r}")
    home = type(model) if isinstance(model, nn.Module) else model
    return f"{getattr(home, '__module__', 'python')}:{getattr(home, '__qualname__', type(model).__name__)}"


def net_maker(model: Model, experiment: Experiment, federation: Federation) -> MakeNet:
    """A function that makes the model, with the same first weights each time; refuses one that does not fit."""
    classes, seed, settings = federation.classes, experiment.seeds[0], experiment.model
    if isinstance(model, str):
        place = (settings, federation.shape, len(classes), seed, weights_of(settings))
        return lambda device: build_model(*place, device)
    # rows of a table reach a person's own model as (N, F)
    shape = federation.shape[:1] if federation.table else federation.shape
    if isinstance(model, nn.Module):
        make = partial(copy.deepcopy, model)
    else:
        require_arguments(settings.name, model, settings.args)
        make = partial(draw, model, shape, len(classes), seed, settings.name, settings.args)
    _require_outputs(make(), shape, classes)
    return lambda device: _net(make(), shape, len(classes), device, settings.features)


def _net(module: nn.Module, shape: tuple[int, ...], classes: int, device: str, features: str | None) -> Net:
    own = as_net(module, last_linear(module, classes), shape, device)  # type: ignore[arg-type] # rows of a table
    net = with_tap(replace(own, outputs=classes), shape, features)  # type: ignore[arg-type]
    return net if len(shape) > 1 else replace(net, scale=lambda rows: own.scale(rows).flatten(1))


@torch.no_grad()
def _require_outputs(module: nn.Module, shape: tuple[int, ...], classes: tuple[str, ...]) -> None:
    """Refuses a model whose outputs are not one per class."""
    trial_pass(module.float().cpu().eval(), shape)
    got = tuple(module(torch.zeros(2, *shape)).shape)
    if got != (2, len(classes)):
        listed = ", ".join(classes[:5]) + ", …" * (len(classes) > 5)
        raise UserError(
            f"the model {type(module).__name__} must give {len(classes)} outputs for each image, one per class "
            f"({listed}), got {got[1]}: change its last layer, or name all classes with "
            "classes=[…]"
        )
