"""Another view of the same images: what they show stays, how it looks changes; each image by its own draw."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, radians
from typing import Literal

import torch
from torch import Generator, Tensor

from fedpca.parts.client.augment import moved

Kind = Literal["auto", "turn", "colour", "noise"]
GREY = (0.299, 0.587, 0.114)  # shares of red, green and blue in brightness
# to brightness and two axes of colour, around which a hue turns (YIQ)
TO_YIQ = torch.tensor([GREY, (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135)])


@dataclass(frozen=True)
class View:
    """Images turned, mirrored and changed in colour, or with noise, by what they are unless `kind` says so.

    `auto`: colour images mirrored and changed in colour, other pictures turned, noise on what is no picture.
    """

    kind: Kind
    degrees: float  # of a turn, either way, at most
    strength: float  # by which brightness, contrast and saturation change at most, as a share
    hue: float  # by which a hue turns at most, as a share of the circle
    changed: float  # share of the images that change in colour
    grey: float  # share of the images that become grey
    noise: float  # of what is no picture, in deviations of each number over the batch

    def __call__(self, images: Tensor, rng: Generator) -> Tensor:
        """New images of the same type and shape."""
        kind = kind_of(images) if self.kind == "auto" else self.kind
        changed = {"turn": self._turned, "colour": self._coloured, "noise": self._noisy}[kind](images, rng)
        low, high = (0.0, 255.0) if images.dtype == torch.uint8 else (changed.min().item(), changed.max().item())
        return changed.clamp(low, high).to(images.dtype)

    def _turned(self, images: Tensor, rng: Generator) -> Tensor:
        count, (height, width) = len(images), images.shape[2:]
        turn = (2 * torch.rand(count, generator=rng) - 1) * radians(self.degrees)
        still = torch.zeros(count)
        return moved(images.view(count, -1, height, width), turn, still, still, still.bool())

    def _noisy(self, images: Tensor, rng: Generator) -> Tensor:
        values = images.float()
        deviation = values.std(dim=0, correction=0)
        return values + self.noise * deviation * torch.randn(images.shape, generator=rng)

    def _coloured(self, images: Tensor, rng: Generator) -> Tensor:
        count = len(images)
        mirrored, changed, grey = torch.rand((3, count), generator=rng)
        light, contrast, colour, hue = 2 * torch.rand((4, count), generator=rng) - 1
        pictures = torch.where(_each(mirrored < 0.5), images.flip(3), images).float()
        jittered = turned_hue(
            stretched(pictures, 1 + self.strength * light, 1 + self.strength * contrast, 1 + self.strength * colour),
            2 * pi * self.hue * hue,
        )
        if images.dtype == torch.uint8:
            jittered = jittered.clamp(0, 255)
        pictures = torch.where(_each(changed < self.changed), jittered, pictures)
        return torch.where(_each(grey < self.grey), brightness(pictures).expand_as(pictures), pictures)


def kind_of(images: Tensor) -> Literal["turn", "colour", "noise"]:
    """What suits a batch: by its channels, and whether it has rows and columns at all."""
    if images.ndim != 4 or min(images.shape[2:]) < 2:
        return "noise"
    return "colour" if images.shape[1] == 3 else "turn"


def stretched(pictures: Tensor, light: Tensor, contrast: Tensor, colour: Tensor) -> Tensor:
    """Pictures (N, 3, H, W) times their light, stretched around their mean grey, then around their own grey."""
    lit = pictures * _each(light)
    middle = brightness(lit).mean(dim=(2, 3), keepdim=True)
    sharp = middle + _each(contrast) * (lit - middle)
    grey = brightness(sharp)
    return grey + _each(colour) * (sharp - grey)


def turned_hue(pictures: Tensor, angle: Tensor) -> Tensor:
    """Pictures (N, 3, H, W) whose colours are turned around grey by an angle each; brightness stays."""
    still, cos, sin = torch.zeros_like(angle), angle.cos(), angle.sin()
    rows = ((still + 1, still, still), (still, cos, -sin), (still, sin, cos))
    turn = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)  # (N, 3, 3)
    whole = torch.linalg.inv(TO_YIQ) @ turn @ TO_YIQ
    return torch.einsum("nij,njhw->nihw", whole, pictures)


def brightness(pictures: Tensor) -> Tensor:
    """The grey (N, 1, H, W) of pictures (N, 3, H, W)."""
    return (pictures * torch.tensor(GREY).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
