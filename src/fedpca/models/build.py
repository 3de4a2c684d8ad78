"""Networks by name or by the user's own function, ready for federated training."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

from fedpca.core import Net
from fedpca.errors import UserError
from fedpca.models.flat import flatten, moved
from fedpca.models.lite0 import Lite0
from fedpca.models.winograd import Conv3x3
from fedpca.rng import seed_of
from fedpca.settings.catalogue import MODELS

Shape = tuple[int, int, int]  # channels, height, width
Factory = Callable[[Shape, int], nn.Module]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def build(name: str, shape: Shape, classes: int, seed: int, weights: Path | None = None, device: str = "cpu") -> Net:
    """A model of this name with weights drawn for this seed, or taken from a file; uint8 images go straight in.

    The weights are drawn on the CPU, so that they are the same on every device.
    """
    factory = FACTORIES.get(name) or _import_factory(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "model"))
        module = factory(shape, classes)
    if not isinstance(module, nn.Module):
        raise UserError(f"model {name!r} must return an nn.Module, came {type(module).__name__}")
    head = last_linear(module, classes)
    if weights is not None:
        load_pretrained(module, weights, head)
    module = module.float().eval()
    draws = draws_in_forward(module, shape)
    return flatten(module.to(device), head, draws, _scaling(name, shape[0], device))


def usable(device: str) -> str:
    """The device's name, if this PyTorch finds it on this machine."""
    kind = torch.device(device).type
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if (torch.device(device).index or 0) >= count:
        found = f"{count} of that kind" if count else "none of that kind"
        raise UserError(f'device: there is no {device!r} for PyTorch {torch.__version__} here ({found}); use "cpu"')
    return device


@dataclass(frozen=True)
class Scaling:
    """Turns uint8 pixels into standardised floats, channels last, on the device; floats pass as they are."""

    factor: Tensor  # (C, 1, 1)
    shift: Tensor  # (C, 1, 1)

    @staticmethod
    def for_channels(channels: int, device: str = "cpu") -> Scaling:
        """ImageNet's mean and deviation for colour, as the compared methods use; 1/2 and 1/4 for anything else."""
        mean, std = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.5,) * channels, (0.25,) * channels)
        return Scaling.by(mean, std, device)

    @staticmethod
    def by(mean: tuple[float, ...], std: tuple[float, ...], device: str) -> Scaling:
        """The mean and deviation of each channel, white being 1, as 0 and 1."""
        spread = torch.tensor(std).view(-1, 1, 1)
        shift = -torch.tensor(mean).view(-1, 1, 1) / spread
        return Scaling((1 / (255 * spread)).to(device), shift.to(device))

    def __call__(self, images: Tensor) -> Tensor:
        """What goes into the model."""
        images = moved(images, self.factor.device)
        layout = torch.channels_last if images.ndim == 4 else torch.preserve_format
        if images.dtype != torch.uint8:
            return images.to(torch.float32, memory_format=layout)
        return images.to(torch.float32, memory_format=layout).mul_(self.factor).add_(self.shift)


def _scaling(name: str, channels: int, device: str) -> Scaling:
    """What the model's published weights were trained on: EfficientNet-Lite0's on (x - 127) / 128."""
    if name == "efficientnet-lite0":
        return Scaling.by((127 / 255,) * channels, (128 / 255,) * channels, device)
    return Scaling.for_channels(channels, device)


def last_linear(module: nn.Module, classes: int) -> nn.Linear:
    """The layer that features go into: `module.head` if linear, else the last linear one with `classes` outputs."""
    given = getattr(module, "head", None)
    if isinstance(given, nn.Linear) and given.out_features == classes:
        return given
    fitting = [part for part in module.modules() if isinstance(part, nn.Linear) and part.out_features == classes]
    if not fitting:
        raise UserError(
            f"the model {type(module).__name__} has no linear layer with {classes} outputs, one per class; "
            "features are what goes into that layer: end the model with nn.Linear, or name it `head`"
        )
    return fitting[-1]


def draws_in_forward(module: nn.Module, shape: Shape) -> bool:
    """Whether a pass in train mode draws from PyTorch's global generator, as dropout does: found by trying."""
    state = copy.deepcopy(module.state_dict())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        module.train()(torch.zeros(2, *shape))
        drawn = not torch.equal(before, torch.get_rng_state())
    module.eval().load_state_dict(state)
    return drawn


def load_pretrained(module: nn.Module, path: Path, head: nn.Linear) -> None:
    """Fills a model from a file of named tensors; a last layer made for other classes is left as drawn."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)  # tensors only: runs no code
    except Exception as error:
        raise UserError(f"model.weights: cannot read {path}: {error}") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise UserError(f"model.weights: {path} must hold nothing but tensors by name, as `state_dict` gives them")
    own = module.state_dict()
    given = {name: _for_grey(tensor, own[name]) for name, tensor in tensors.items() if name in own}
    fitting = {name: tensor for name, tensor in given.items() if own[name].shape == tensor.shape}
    drawn = {name for name, weight in module.named_parameters() if weight is head.weight or weight is head.bias}
    left = [name for name in own if name not in fitting and name not in drawn]
    if left:
        raise UserError(f"model.weights: {path} has no fitting {left[0]!r} ({len(left)} of {len(own)} tensors missing)")
    module.load_state_dict(fitting, strict=False)


def _for_grey(tensor: Tensor, own: Tensor) -> Tensor:
    """The kernels of a first convolution for colour, summed where it gets grey: as if all three colours were equal."""
    grey = tensor.ndim == own.ndim == 4 and (tensor.shape[1], own.shape[1]) == (3, 1)
    return tensor.sum(dim=1, keepdim=True) if grey else tensor


def linear(shape: Shape, classes: int) -> nn.Module:
    """No hidden layer: what goes in are the features."""
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


def mlp(shape: Shape, classes: int, hidden: int = 64) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))


def cnn_small(shape: Shape, classes: int) -> nn.Module:
    """Two 3x3 convolutions with pooling, a hidden layer of 128; 8x8 to 32x32.

    Each ReLU comes after its pooling: the same numbers, gradients too, from a quarter of the entries.
    """
    channels, height, width = shape
    if min(height, width) < 8:
        raise UserError(f"cnn-small needs images of at least 8x8, came {height}x{width}")
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut (He et al. 2016), under torchvision's parameter names."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = (
            Conv3x3(inputs, outputs) if stride == 1 else nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        )
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    """ResNet-18 with either stem; 512 features before `fc`."""

    def __init__(self, channels: int, classes: int, imagenet_stem: bool) -> None:
        super().__init__()
        kernel, stride, padding = (7, 2, 3) if imagenet_stem else (3, 1, 1)
        self.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if imagenet_stem else nn.Identity()
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, classes)."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


FACTORIES: dict[str, Factory] = {
    "linear": linear,
    "mlp": mlp,
    "mlp-16": partial(mlp, hidden=16),
    "cnn-small": cnn_small,
    "resnet18": lambda shape, classes: ResNet18(shape[0], classes, imagenet_stem=False),
    "resnet18-imagenet": lambda shape, classes: ResNet18(shape[0], classes, imagenet_stem=True),
    "efficientnet-lite0": lambda shape, classes: Lite0(shape[0], classes),
}


def _import_factory(name: str) -> Factory:
    module, colon, function = name.partition(":")
    if not colon:
        names = ", ".join(MODELS)
        raise UserError(f"model.name: there is no model {name!r}; there are {names}")
    try:
        factory: Factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UserError(f"model.name: cannot import {name!r}: {error}") from None
    return factory
