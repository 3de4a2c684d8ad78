"""Random changes to a batch of training images: those that leave their labels true, and blends of two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import radians
from typing import cast

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from fedpca.settings.registry import Registry

Augment = Callable[[Tensor, Generator], Tensor]  # images, random numbers -> images
Blend = Callable[[Tensor, Tensor, int, Generator], tuple[Tensor, Tensor]]  # images, labels, classes, random numbers


@dataclass(frozen=True)
class CropFlip:
    """Each image shifted by up to `pad` pixels either way, zeros moving in, and mirrored by the toss of a coin."""

    pad: int

    def __call__(self, images: Tensor, rng: Generator) -> Tensor:
        """A new batch (N, C, H, W) of the same type and memory format."""
        # One gather does crop and flip at once, with an index that the channels share: the fastest of a dozen ways on a
        # CPU. Writing through `out` keeps the memory format, which gather alone would lose.
        height, width = images.shape[2:]
        padded = functional.pad(images, (self.pad,) * 4).flatten(2)
        source = self._source(len(images), height, width, rng).to(images.device)
        result = torch.empty_like(images, memory_format=_format(images))
        torch.gather(padded, 2, source[:, None].expand(-1, images.shape[1], -1), out=result.flatten(2))
        return result

    def _source(self, count: int, height: int, width: int, rng: Generator) -> Tensor:
        """Where in its padded image each pixel comes from: (N, H*W) offsets."""
        top, left = torch.randint(2 * self.pad + 1, (2, count, 1), generator=rng, device=rng.device)
        mirrored = torch.randint(2, (count, 1), generator=rng, device=rng.device, dtype=torch.bool)
        row = top + torch.arange(height, device=rng.device)
        column = torch.arange(width, device=rng.device)
        column = left + torch.where(mirrored, width - 1 - column, column)
        offset: Tensor = row[:, :, None] * (width + 2 * self.pad) + column[:, None, :]
        return offset.flatten(1)


@dataclass(frozen=True)
class AffineFlip:
    """Each image turned by up to `degrees` and moved by up to `shift` of its sides, and mirrored by the toss of a coin.

    What torchvision's RandomAffine(degrees, (shift, shift)) and RandomHorizontalFlip do to a picture: whole pixels of
    shift, the nearest pixel's value, zeros from outside.
    """

    degrees: float
    shift: float

    def __call__(self, images: Tensor, rng: Generator) -> Tensor:
        """A new batch (N, C, H, W) of the same type and memory format."""
        height, width = images.shape[2:]
        turn, right, down = 2 * torch.rand((3, len(images)), generator=rng, device=rng.device) - 1
        mirrored = torch.randint(2, (len(images),), generator=rng, device=rng.device, dtype=torch.bool)
        right, down = (right * self.shift * width).round(), (down * self.shift * height).round()
        return moved(images, turn * radians(self.degrees), right, down, mirrored)


def moved(images: Tensor, turn: Tensor, right: Tensor, down: Tensor, mirrored: Tensor) -> Tensor:
    """Images (N, C, H, W) turned clockwise, moved by pixels, then mirrored, each by its own entry of (N,) values."""
    height, width = images.shape[2:]
    turn, right, down, mirrored = (each[:, None, None] for each in (turn, right, down, mirrored))
    x = torch.arange(width, device=turn.device) + 0.5 - width / 2  # a pixel's value is that of its centre
    x = torch.where(mirrored, -x, x) - right
    y = (torch.arange(height, device=turn.device) + 0.5 - height / 2)[:, None] - down
    column = (x * turn.cos() + y * turn.sin() + width / 2).floor_()
    row = (y * turn.cos() - x * turn.sin() + height / 2).floor_()
    outside = (column < 0) | (column >= width) | (row < 0) | (row >= height)
    source = (row.long() * width + column.long()).masked_fill_(outside, 0).flatten(1)
    result = torch.empty_like(images, memory_format=_format(images))
    pixels = result.flatten(2)  # a view, channels last or not
    source = source[:, None].expand(-1, images.shape[1], -1).to(images.device)
    torch.gather(images.flatten(2), 2, source, out=pixels)
    pixels.masked_fill_(outside.flatten(1)[:, None].to(images.device), 0)
    return result


AUGMENTATIONS: Registry[Augment | None] = Registry(
    "augmentation",
    cast("type[Augment | None]", object),  # anything that can be called
    {
        "none": None,
        "crop-flip": CropFlip(pad=4),
        "crop-flip-2": CropFlip(pad=2),
        "affine-flip": AffineFlip(degrees=10.0, shift=0.02),
    },
)


@dataclass(frozen=True)
class Mixup:
    """Each image blended with another of the batch, a the share of the first, drawn per batch from Beta(alpha, alpha).

    The labels become shares of the classes (N, classes). After Zhang et al. 2018.
    """

    alpha: float

    def __call__(self, images: Tensor, labels: Tensor, classes: int, rng: Generator) -> tuple[Tensor, Tensor]:
        """New images of the same type, whole pixel values staying whole, and the shares."""
        seed, other = torch.randint(2**62, (), generator=rng), torch.randperm(len(images), generator=rng)
        share = float(np.random.default_rng(int(seed)).beta(self.alpha, self.alpha))
        mixed = torch.lerp(images[other].float(), images.float(), share)
        mixed = mixed if images.is_floating_point() else mixed.round_()
        hot = functional.one_hot(labels, classes).float()
        return mixed.to(images.dtype), torch.lerp(hot[other], hot, share)


def _format(images: Tensor) -> torch.memory_format:
    channels_last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if channels_last else torch.contiguous_format
