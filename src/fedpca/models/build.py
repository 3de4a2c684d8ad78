"""Networks by name or by the user's own function, ready for federated training."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import cast

import torch
from torch import nn

from fedpca.core import Net
from fedpca.errors import UserError, nearest
from fedpca.models.cnn import Shape
from fedpca.models.flat import flatten
from fedpca.models.pretrained import load_weights
from fedpca.models.registry import MODELS, ModelEntry, factory_of
from fedpca.models.scaling import Scaling
from fedpca.models.trial import trial_pass
from fedpca.models.user_code import trying
from fedpca.models.winograd import switch_winograd
from fedpca.rng import seed_of
from fedpca.settings.experiment import ModelSettings
from fedpca.settings.registry import import_object

GENERATOR = RLock()  # held by whoever draws from PyTorch's one global generator: two threads would mix their numbers
Factory = Callable[..., nn.Module]  # of the shape of an image, the number of classes, and the arguments that are set


def build(
    name: str,
    shape: Shape,
    classes: int,
    seed: int,
    weights: Path | None = None,
    device: str = "cpu",
    winograd: bool = True,
    args: Mapping[str, object] | None = None,
    features: str | None = None,
) -> Net:
    """A model of this name with weights drawn for this seed, or taken from a file; uint8 images go straight in.

    The weights are drawn on the CPU, so that they are the same on every device. Without `winograd` every convolution is
    PyTorch's own. `args` are given to a user's own function as keyword arguments. `features` names the
    submodule whose output they are.

    >>> from fedpca import build
    >>> build("mlp", (1, 8, 8), 10, seed=0).module[-1]
    Linear(in_features=64, out_features=10, bias=True)
    """
    factory = cast("Factory", import_object(factory_of(name), "model"))
    require_arguments(name, factory, args or {})
    module = draw(factory, shape, classes, seed, name, args)
    head = last_linear(module, classes)
    if weights is not None:
        load_weights(module, weights, head)
    switch_winograd(module, winograd)
    net = as_net(module, head, shape, device, MODELS.get(name))
    return with_tap(replace(net, outputs=classes), shape, features)


def build_model(
    model: ModelSettings, shape: Shape, classes: int, seed: int, weights: Path | None = None, device: str = "cpu"
) -> Net:
    """The model that the settings describe, as `build` makes it; it starts from `weights`, where a file is given."""
    return build(model.name, shape, classes, seed, weights, device, model.winograd, model.args, model.features)


def require_arguments(name: str, factory: Callable[..., object], args: Mapping[str, object]) -> None:
    """Refuses arguments that a user's function does not take, or lacks, before it is called."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # of some functions of C nothing is known
        return
    try:
        signature.bind((), 0, **args)
    except TypeError as error:
        given = "".join(f", {key}" for key in args)
        raise UserError(
            f"model {name!r} is called as (shape, classes{given}), but takes {signature}: {error}; "
            "change the function, or [model.args], which holds its keyword arguments"
        ) from None


def with_tap(net: Net, shape: Shape, features: str | None) -> Net:
    """The model with features that are a submodule's output, if it is named; found out by a pass of two images."""
    parts = dict(net.module.named_modules())
    if features is not None and features not in parts:
        near = nearest(features, filter(None, parts))
        raise UserError(f"model.features: the model has no submodule {features!r}{near}")
    net = replace(net, tap=parts[features]) if features is not None else net
    if net.tap is None and net.head is not None:
        return net
    with torch.no_grad():
        images = torch.zeros(2, *shape)
        seen, logits = net.features(images) if net.tap is not None else (images, net(images))
    if logits.shape != (2, net.outputs):
        raise UserError(
            f"the model {type(net.module).__name__} must have an output per class, so that two images give "
            f"{(2, net.outputs)}, got {tuple(logits.shape)}: end it with nn.Linear(…, {net.outputs})"
        )
    if not isinstance(seen, torch.Tensor) or len(seen) != 2:
        raise UserError(f"model.features = {features!r}: that submodule must give a tensor with a row per image")
    return net


def draw(
    factory: Factory,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    name: str,
    args: Mapping[str, object] | None = None,
) -> nn.Module:
    """What a function makes of the shape of an image and the number of classes, its weights drawn for this seed."""
    with GENERATOR, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "model"))
        with trying(f"model {name!r}: calling it as function(shape, classes) with {shape}, {classes}"):
            module = factory(shape, classes, **(args or {}))
    if not isinstance(module, nn.Module):
        raise UserError(f"model {name!r} must return an nn.Module, got {type(module).__name__}")
    return module


def as_net(
    module: nn.Module, head: nn.Linear | None, shape: Shape, device: str, known: ModelEntry | None = None
) -> Net:
    """A module, in eval mode, ready for federated training on a device; `known` if it is one of the package's own.

    Only those get images channels last: a user's module may take views of what it is given, as `x.view(len(x), -1)`.
    """
    module, own = module.float().eval(), known is not None
    draws = draws_in_forward(module, shape)
    scale = Scaling.for_channels(shape[0], device, known.pixels if known else None, channels_last=own)
    return flatten(module.to(device), head, draws, scale, channels_last=own)


def last_linear(module: nn.Module, classes: int) -> nn.Linear | None:
    """The layer that features go into: `module.head` if linear, else the last linear one with `classes` outputs."""
    given = getattr(module, "head", None)
    if isinstance(given, nn.Linear) and given.out_features == classes:
        return given
    fitting = [part for part in module.modules() if isinstance(part, nn.Linear) and part.out_features == classes]
    return fitting[-1] if fitting else None


def draws_in_forward(module: nn.Module, shape: Shape) -> bool:
    """Whether a pass in train mode draws from PyTorch's global generator, as dropout does: found by trying."""
    state = copy.deepcopy(module.state_dict())
    with GENERATOR, torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        trial_pass(module.train(), shape)
        drawn = not torch.equal(before, torch.get_rng_state())
    module.eval().load_state_dict(state)
    return drawn
