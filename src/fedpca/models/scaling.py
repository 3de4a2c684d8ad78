"""From pixels to what goes into a model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpca.models.device import to_device

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Scaling:
    """Turns uint8 pixels into standardised floats on the device; floats pass as they are."""

    factor: Tensor  # (C, 1, 1)
    shift: Tensor  # (C, 1, 1)
    channels_last: bool = True  # else contiguous as (N, C, H, W), so that a user's model may take views of it

    @staticmethod
    def for_channels(
        channels: int, device: str = "cpu", pixels: tuple[float, float] | None = None, channels_last: bool = True
    ) -> Scaling:
        """By one mean and deviation of all pixels, white being 1; ImageNet's for colour, 1/2 and 1/4 for anything else.

        Those of ImageNet are what the compared methods use.
        """
        if pixels is None and channels == 3:
            return Scaling._by(IMAGENET_MEAN, IMAGENET_STD, device, channels_last)
        mean, std = pixels or (0.5, 0.25)
        return Scaling._by((mean,) * channels, (std,) * channels, device, channels_last)

    @staticmethod
    def _by(mean: tuple[float, ...], std: tuple[float, ...], device: str, channels_last: bool) -> Scaling:
        spread = torch.tensor(std).view(-1, 1, 1)
        shift = -torch.tensor(mean).view(-1, 1, 1) / spread
        return Scaling((1 / (255 * spread)).to(device), shift.to(device), channels_last)

    def __call__(self, images: Tensor) -> Tensor:
        """What goes into the model."""
        images = to_device(images, self.factor.device)
        if not self.channels_last:
            images = images.contiguous().view(-1).view(images.shape)  # strides too: those of one channel are ambiguous
        layout = torch.channels_last if images.ndim == 4 and self.channels_last else torch.preserve_format
        if images.dtype != torch.uint8:
            return images.to(torch.float32, memory_format=layout)
        return images.to(torch.float32, memory_format=layout).mul_(self.factor).add_(self.shift)
