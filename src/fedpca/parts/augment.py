"""Random changes to a batch of training images: those that leave their labels true, and blends of two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

Augment = Callable[[Tensor, Generator], Tensor]  # images, random numbers -> images
Blend = Callable[[Tensor, Tensor, int, Generator], tuple[Tensor, Tensor]]  # images, labels, classes, random numbers


def unchanged(images: Tensor, rng: Generator) -> Tensor:
    """The images as they are."""
    return images


@dataclass(frozen=True)
class CropFlip:
    """Each image shifted by up to `pad` pixels either way, zeros moving in, and mirrored by the toss of a coin."""

    pad: int = 4

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


def unblended(images: Tensor, labels: Tensor, classes: int, rng: Generator) -> tuple[Tensor, Tensor]:
    """The images and labels (N,) as they are."""
    return images, labels


@dataclass(frozen=True)
class Mixup:
    """Each image blended with another of the batch, a the share of the first, drawn per batch from Beta(alpha, alpha).

    The labels become shares of the classes (N, classes). After Zhang et al. 2018.
    """

    alpha: float = 1.0

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
