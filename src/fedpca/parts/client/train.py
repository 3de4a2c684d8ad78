"""Local training: the one loop in which any client of any method changes weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from fedpca.core import Net, Params, Report, Samples, Site, Update
from fedpca.models.device import to_device
from fedpca.models.flat import params_of
from fedpca.parts.client.augment import Augment, Blend, unblended, unchanged
from fedpca.parts.client.loss import Loss, cross_entropy
from fedpca.parts.client.step import Step, descend

PIECE = 1 << 15  # pixels of the images of a part of a batch: what convolutions make of them stays in the cache
BY_IMAGE = (nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear, nn.GroupNorm)

After = Callable[[Site, Params], Report]  # on the client, its new model in eval mode; what it sends of it as well


def nothing(site: Site, params: Params) -> Report:
    """Nothing more than the weights."""
    return {}


def piece_of(net: Net) -> int | None:
    """Pixels that a part of a batch may have; None if the batch must be whole.

    On a CPU, for a sequence of layers known to treat each image by itself: then the gradients of parts add up.
    """
    known = type(net.module) is nn.Sequential and all(type(part) in BY_IMAGE for part in net.module)
    return PIECE if known and net.device.type == "cpu" else None


def pieces(images: Tensor, labels: Tensor, pixels: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """A batch in parts of about as many pixels, but of at least eight images."""
    most = len(labels) if pixels is None else max(8, pixels // max(1, images[0, 0].numel()))
    count = -(-len(labels) // most)
    yield from zip(images.chunk(count), labels.chunk(count), strict=True) if count > 1 else [(images, labels)]


@dataclass(frozen=True)
class Descent:
    """Which optimiser, made anew for each client and round: its moments do not outlive the round."""

    optimizer: str  # sgd or adam
    lr: float
    momentum: float
    weight_decay: float

    def __call__(self, net: Net) -> Optimizer:
        """An optimiser of the whole weight vector at once."""
        if self.optimizer == "adam":
            return Adam([net.weights], lr=self.lr, weight_decay=self.weight_decay, fused=True)
        return SGD([net.weights], lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True)
class LocalTraining:
    """Some epochs of mini-batches over the selected samples, freshly shuffled."""

    descent: Descent
    batch: int
    epochs: int
    augment: Augment = unchanged
    blend: Blend = unblended
    loss: Loss = cross_entropy
    step: Step = descend
    after: After = nothing

    def __call__(self, site: Site, samples: Samples) -> Update:
        """The client's new weights."""
        if len(samples.rows) == 0:
            return Update(None, 0)
        site.net.module.train()
        optimizer, loss_of, pixels = self.descent(site.net), self.loss(site, samples), piece_of(site.net)
        for picks in self.batches(len(samples.rows), site.rng):
            images = self.augment(site.x[samples.rows[picks]], site.rng)
            images, labels = self.blend(images, samples.labels[picks], site.net.head.out_features, site.rng)
            labels = to_device(labels, site.net.device)

            def backward(images: Tensor = images, labels: Tensor = labels) -> None:
                for some, own in pieces(images, labels, pixels):
                    share = len(own) / len(labels)
                    (share * loss_of(some, site.net(some), own)).backward()  # type: ignore[no-untyped-call]

            self.step(site, backward, optimizer)
        site.net.module.eval()
        params = params_of(site.net)
        with torch.no_grad():
            report = self.after(site, params)
        return Update(params, len(samples.rows), samples.reliability, report)

    def batches(self, count: int, rng: Generator) -> Iterator[Tensor]:
        """Rows of each step; a last batch of one is passed over, since batch norm cannot train on it."""
        for _ in range(self.epochs):
            shuffled = torch.randperm(count, generator=rng)
            for begin in range(0, count - 1, self.batch):
                yield shuffled[begin : begin + self.batch] if count > self.batch else shuffled
