"""What every system trains: the same models, data and SGD steps. Imports PyTorch alone: peers have no fedpca."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.optim import SGD

LR, MOMENTUM, DECAY, CLASSES = 0.03, 0.9, 0.0, 10


@dataclass(frozen=True)
class Workload:
    """One FedAvg round: every client trains one epoch, the server averages by size."""

    model: str  # as fedpca names it
    clients: int
    images: int  # of each client
    shape: tuple[int, int, int]  # channels, height, width
    batch: int
    pad: int = 0  # if not 0, each batch's images are cropped by as many pixels and flipped, at random

    @property
    def steps(self) -> int:
        """SGD steps of a round; a last batch that is not full counts as one."""
        return self.clients * -(-self.images // self.batch)

    @property
    def megabytes(self) -> float:
        """Size of all clients' images and labels."""
        channels, height, width = self.shape
        return self.clients * self.images * (4 * channels * height * width + 8) / 2**20


DIGITS = Workload("mlp", 100, 18, (1, 8, 8), 18)
WORKLOADS = {
    "W1": Workload("cnn-small", 50, 200, (3, 32, 32), 64),
    "W2": Workload("resnet18", 10, 128, (3, 32, 32), 64),
    "W3": DIGITS,
    **{f"W4-{clients}": replace(DIGITS, clients=clients) for clients in (100, 1000, 5000)},
    "W6": Workload("resnet8", 50, 400, (3, 16, 16), 16, pad=2),
}


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def data_of(workload: Workload) -> list[tuple[Tensor, Tensor]]:
    """Each client's standardised images and labels: noise, always the same; views into two large tensors."""
    rng = torch.Generator().manual_seed(0)
    count = workload.clients * workload.images
    x = torch.randn(count, *workload.shape, generator=rng)
    y = torch.randint(0, CLASSES, (count,), generator=rng)
    return list(zip(x.split(workload.images), y.split(workload.images), strict=True))


def model_of(workload: Workload) -> nn.Module:
    """The model with the weights that every system starts from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[workload.model](workload.shape)


def optimizer_of(model: nn.Module) -> SGD:
    """As PyTorch makes it by default."""
    return SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)


def crop_flip(images: Tensor, pad: int) -> Tensor:
    """Each image shifted by up to `pad` pixels and mirrored by the toss of a coin, the whole batch at once."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (pad,) * 4)
    top, left = torch.randint(2 * pad + 1, (2, count, 1))
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    columns = torch.where(torch.randint(2, (count, 1)) == 1, columns.flip(1), columns)
    changed = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return changed.permute(0, 3, 1, 2).contiguous()


def batches(x: Tensor, y: Tensor, size: int, pad: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch, shuffled, and changed where there is a pad."""
    for rows in torch.randperm(len(y)).split(size):
        yield (crop_flip(x[rows], pad) if pad else x[rows]), y[rows]


def fit(model: nn.Module, optimizer: SGD, x: Tensor, y: Tensor, batch: int, pad: int = 0) -> None:
    """Trains one epoch in place."""
    for images, labels in batches(x, y, batch, pad):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()


def mlp(shape: tuple[int, int, int]) -> nn.Module:
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def cnn_small(shape: tuple[int, int, int]) -> nn.Module:
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 128),
        nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


class NarrowBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet8(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(NarrowBlock(16, 16, 1), NarrowBlock(16, 32, 2), NarrowBlock(32, 64, 2))
        self.fc = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.norm(self.conv(x))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


MODELS = {
    "mlp": mlp,
    "cnn-small": cnn_small,
    "resnet18": lambda shape: ResNet18(shape[0]),
    "resnet8": lambda shape: ResNet8(shape[0]),
}
