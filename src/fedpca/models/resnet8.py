"""A narrow residual network for small images: one block each of 16, 32 and 64 channels, 78,000 weights."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedpca.models.cnn import Shape

Norm = Callable[[int], nn.Module]  # of so many channels
GROUPS = 8  # of channels, each group normalised by itself in one image


def resnet8(shape: Shape, classes: int) -> nn.Module:
    """With batch norm."""
    return ResNet8(shape[0], classes, nn.BatchNorm2d)


def resnet8_gn(shape: Shape, classes: int) -> nn.Module:
    """With group norm: an image's prediction depends on that image alone, in training too."""
    return ResNet8(shape[0], classes, lambda channels: nn.GroupNorm(GROUPS, channels))


class NarrowBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = torch.relu_(self.norm1(self.conv1(x)))
        return torch.relu_(self.norm2(self.conv2(y)).add_(self.shortcut(x)))


class ResNet8(nn.Module):
    """A 3x3 stem, three blocks, and 64 features before `fc`."""

    def __init__(self, channels: int, classes: int, norm: Norm) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.norm = norm(16)
        self.blocks = nn.Sequential(
            NarrowBlock(16, 16, 1, norm), NarrowBlock(16, 32, 2, norm), NarrowBlock(32, 64, 2, norm)
        )
        self.fc = nn.Linear(64, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, classes)."""
        features = self.blocks(torch.relu_(self.norm(self.conv(x)))).mean(dim=(2, 3))
        logits: Tensor = self.fc(features)
        return logits
