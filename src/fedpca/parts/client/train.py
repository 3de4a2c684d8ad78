"""Local training: the one loop in which any client of any method changes weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from fedpca.core import Net, Params, Report, Samples, Site, Update
from fedpca.models.device import to_device
from fedpca.models.flat import params_of
from fedpca.parts.abilities import BatchTraining, Direction, ability
from fedpca.parts.client.augment import Augment, Blend
from fedpca.parts.client.loss import Batch, Loss, cross_entropy
from fedpca.parts.client.step import Step, descend
from fedpca.screening import Claims, claims_of

PIECE = 1 << 15  # pixels of the images of a part of a batch: what convolutions make of them stays in the cache
BY_IMAGE = (nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear, nn.GroupNorm)

After = Callable[[Site, Params], Report]  # on the client, its new model in eval mode; what it sends of it as well


def piece_of(net: Net) -> int | None:
    """Pixels that a part of a batch may have; None if the batch must be whole.

    On a CPU, for a sequence of layers known to treat each image by itself: then the gradients of parts add up.
    """
    known = type(net.module) is nn.Sequential and all(type(part) in BY_IMAGE for part in net.module)
    return PIECE if known and net.device.type == "cpu" else None


def pieces(images: Tensor, pixels: int | None, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """A batch in parts of about as many pixels, but of at least eight images; others are what belongs to them."""
    most = len(images) if pixels is None else max(8, pixels // max(1, images[0, 0].numel()))
    count = -(-len(images) // most)
    whole = (images, *others)
    yield from zip(*(each.chunk(count) for each in whole), strict=True) if count > 1 else [whole]


@dataclass(frozen=True)
class Descent:
    """Which optimiser, made anew for each client and round: its moments do not outlive the round."""

    optimizer: str  # sgd or adam
    lr: float
    momentum: float
    weight_decay: float

    def __call__(self, net: Net) -> Optimizer:
        """An optimiser of the whole weight vector at once."""
        return self.over([net.weights])

    def over(self, tensors: Sequence[Tensor]) -> Optimizer:
        """An optimiser of any tensors."""
        if self.optimizer == "adam":
            return Adam(tensors, lr=self.lr, weight_decay=self.weight_decay, fused=True)
        return SGD(tensors, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True)
class LocalTraining:
    """Some epochs of mini-batches over the selected samples, freshly shuffled."""

    descent: Descent
    batch: int
    epochs: int
    augment: Augment | None = None
    blend: Blend | None = None
    loss: Loss = cross_entropy
    step: Step = descend
    after: After | None = None

    def __call__(self, site: Site, samples: Samples) -> Update:
        if samples.size == 0:
            return Update(None, 0)
        site.net.module.train()
        optimizer, loss_of, pixels = self.descent(site.net), self.loss(site, samples), piece_of(site.net)
        for picks in self.batches(len(samples.rows), site.rng):
            rows = samples.rows[picks]
            images, labels = self._changed(site, site.x[rows], samples.labels[picks])

            def backward(images: Tensor = images, labels: Tensor = labels, rows: Tensor = rows) -> None:
                for some, own, places in pieces(images, pixels, labels, rows):
                    share = len(own) / len(labels)
                    batch = Batch(some, site.net(some), own, places)
                    (share * loss_of(batch)).backward()  # type: ignore[no-untyped-call]

            self.step(site, backward, optimizer)
        site.net.module.eval()
        params = params_of(site.net)
        with torch.no_grad():
            report = self.after(site, params) if self.after else {}
        return Update(params, samples.size, samples.reliability, report)

    def _changed(self, site: Site, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """A batch, augmented and blended where asked for; the labels are where the model is."""
        if self.augment:
            images = self.augment(images, site.rng)
        if self.blend:
            images, labels = self.blend(images, labels, site.net.classes, site.rng)
        return images, to_device(labels, site.net.device)

    def batches(self, count: int, rng: Generator) -> Iterator[Tensor]:
        """Rows of each step; a last batch of one is passed over, since batch norm cannot train on it."""
        for _ in range(self.epochs):
            shuffled = torch.randperm(count, generator=rng)
            for begin in range(0, count - 1, self.batch):
                yield shuffled[begin : begin + self.batch] if count > self.batch else shuffled

    @property
    def claims(self) -> Claims:
        """What is said of the client's own new model, where it has one."""
        return claims_of(self.after).after_training()

    @property
    def as_batch(self) -> BatchTraining | None:
        """What many clients need to train as one; None with Adam, changed images, or a loss or step of one alone."""
        shift, direction_for = ability(self.loss, "logit_shift"), _direction_for(self.step)
        if self.augment or self.blend or self.descent.optimizer != "sgd" or not shift or not direction_for:
            return None
        sgd = (self.descent.lr, self.descent.momentum, self.descent.weight_decay)
        loss = shift, ability(self.loss, "pull") or 0.0
        return BatchTraining(*sgd, self.batch, self.epochs, self.batches, *loss, direction_for, self.after)

    @property
    def parts(self) -> dict[str, Any]:
        """Its parts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def with_parts(self, parts: Mapping[str, Any]) -> LocalTraining:
        """The same training with some parts changed."""
        return replace(self, **parts)


def _direction_for(step: Step) -> Callable[[Sequence[Site]], Direction] | None:
    """What gives the direction of many clients' steps, if the step can."""
    made: Callable[[Sequence[Site]], Direction] | None = ability(step, "direction_for")
    direction = ability(step, "direction")
    return made or (direction and (lambda sites: direction))
