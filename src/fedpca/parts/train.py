"""Local training: the one loop in which any client of any method changes weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.optim import SGD, Adam, Optimizer

from fedpca.core import Net, Samples, Site, Update
from fedpca.params import params_of
from fedpca.parts.augment import Augment, unchanged
from fedpca.parts.loss import Loss, cross_entropy
from fedpca.parts.step import Step, descend


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
    loss: Loss = cross_entropy
    step: Step = descend

    def __call__(self, site: Site, samples: Samples) -> Update:
        """The client's new weights."""
        if len(samples.rows) == 0:
            return Update(None, 0)
        site.net.module.train()
        optimizer, loss_of = self.descent(site.net), self.loss(site, samples)
        for picks in self._batches(len(samples.rows), site.rng):
            images = self.augment(site.x[samples.rows[picks]], site.rng)
            labels = samples.labels[picks]

            def backward(images: Tensor = images, labels: Tensor = labels) -> None:
                loss_of(images, site.net(images), labels).backward()  # type: ignore[no-untyped-call]

            self.step(site.net, backward, optimizer)
        site.net.module.eval()
        return Update(params_of(site.net), len(samples.rows), samples.reliability)

    def _batches(self, count: int, rng: Generator) -> Iterator[Tensor]:
        """Rows of each step; a last batch of one is passed over, since batch norm cannot train on it."""
        for _ in range(self.epochs):
            for picks in torch.split(torch.randperm(count, generator=rng), self.batch):
                if len(picks) > 1:
                    yield picks
