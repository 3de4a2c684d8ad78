"""Small models."""

from math import prod

from torch import nn

from fedpca.errors import UserError

Shape = tuple[int, int, int]  # channels, height, width


def linear(shape: Shape, classes: int) -> nn.Module:
    """No hidden layer: what goes in are the features."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: Shape, classes: int, hidden: int = 64) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))


def mlp_16(shape: Shape, classes: int) -> nn.Module:
    """One hidden layer of 16."""
    return mlp(shape, classes, hidden=16)


def cnn_small(shape: Shape, classes: int) -> nn.Module:
    """Two 3x3 convolutions with pooling, a hidden layer of 128; 8x8 to 32x32.

    Each ReLU comes after its pooling: the same numbers, gradients too, from a quarter of the entries.
    """
    channels, height, width = shape
    if min(height, width) < 8:
        raise UserError(f"cnn-small needs images of at least 8x8, got {height}x{width}")
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
