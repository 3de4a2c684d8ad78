"""Random changes to a batch of training images that leave their labels true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

Augment = Callable[[Tensor, Generator], Tensor]  # images, random numbers -> images


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


def _format(images: Tensor) -> torch.memory_format:
    channels_last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if channels_last else torch.contiguous_format
