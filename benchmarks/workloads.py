"""What every system trains: the same models, data and SGD steps. Imports PyTorch alone: peers have no fedpca."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
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


def batches(x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch, shuffled."""
    for rows in torch.randperm(len(y)).split(size):
        yield x[rows], y[rows]


def fit(model: nn.Module, optimizer: SGD, x: Tensor, y: Tensor, batch: int) -> None:
    """Trains one epoch in place."""
    for images, labels in batches(x, y, batch):
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


MODELS = {"mlp": mlp, "cnn-small": cnn_small, "resnet18": lambda shape: ResNet18(shape[0])}
