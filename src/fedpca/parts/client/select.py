"""Which of its samples a client trains on, and under which labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedpca.core import Order, Samples, Select, Site
from fedpca.parts.abilities import OfMany, ability
from fedpca.parts.client.probe import HeldOut
from fedpca.parts.client.report import MANY, all_logits, log_probs, whole


def everything(site: Site) -> Samples:
    """All samples under the labels in use: the given ones unless the client has corrected them."""
    labels = site.y
    return Samples(all_rows(labels.shape[0]), labels)


@lru_cache(maxsize=1024)
def all_rows(count: int) -> Tensor:
    """0, 1, 2, …: the same tensor for the same count, so that taking every row can be told from taking some."""
    return torch.arange(count)


def nothing() -> Samples:
    """No samples."""
    none = torch.empty(0, dtype=torch.int64)
    return Samples(none, none)


@dataclass(frozen=True)
class NothingOfTheMislabeled:
    """What another selection takes, or nothing if the client is judged mislabeled: (D)."""

    otherwise: Select = everything

    def __call__(self, site: Site) -> Samples:
        return nothing() if site.order.verdict.group == "mislabeled" else self.otherwise(site)

    def idle(self, order: Order) -> bool:
        """Whether there is nothing to train on, whatever the client has."""
        otherwise = ability(self.otherwise, "idle")
        return order.verdict.group == "mislabeled" or bool(otherwise and otherwise(order))


@dataclass(frozen=True)
class ConfidentOfTheMislabeled:
    """All samples; of a client judged mislabeled those predicted with confidence, under their predictions: (HS)."""

    min_samples: int  # fewer samples are not worth a step: batch norm needs two

    def __call__(self, site: Site) -> Samples:
        """The samples; their reliability is the mean confidence."""
        if site.order.verdict.group != "mislabeled":
            return everything(site)
        return self._confident(site, *_likeliest_class(all_logits(site)))

    def of_many(self, sites: Sequence[Site]) -> list[Samples]:
        """Each client's samples; they share the model, and one pass is made for all that are mislabeled."""
        judged = [site for site in sites if site.order.verdict.group == "mislabeled"]
        if not judged:
            return [everything(site) for site in sites]
        images = torch.cat([whole(site) for site in judged])
        surest = _likeliest_class(torch.cat([judged[0].net(some).cpu() for some in torch.split(images, MANY)]))
        sizes = [site.y.shape[0] for site in judged]
        confident = iter(self._of_all([site.order.verdict.threshold for site in judged], sizes, *surest))
        return [next(confident) if site.order.verdict.group == "mislabeled" else everything(site) for site in sites]

    def _of_all(
        self, thresholds: list[float], sizes: list[int], confidence: Tensor, predicted: Tensor
    ) -> Iterator[Samples]:
        """`_confident` of several clients, whose samples lie one after the other."""
        if confidence.max().item() <= min(thresholds):
            yield from (nothing() for _ in sizes)
            return
        owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        picked = (confidence > torch.tensor(thresholds, dtype=confidence.dtype)[owners]).nonzero().flatten()
        starts, whose, sure = torch.tensor([0, *sizes[:-1]]).cumsum(0), owners[picked], confidence[picked]
        counts = torch.bincount(whose, minlength=len(sizes))
        means = torch.zeros(len(sizes), dtype=sure.dtype).index_add_(0, whose, sure) / counts.clamp_min(1)
        chosen = (torch.split(values, counts.tolist()) for values in (picked - starts[whose], predicted[picked]))
        for rows, labels, mean in zip(*chosen, means.tolist(), strict=True):
            yield Samples(rows, labels, mean) if rows.shape[0] >= self.min_samples else nothing()

    def _confident(self, site: Site, confidence: Tensor, predicted: Tensor) -> Samples:
        rows = (confidence > site.order.verdict.threshold).nonzero().flatten()
        if len(rows) < self.min_samples:
            return nothing()
        return Samples(rows, predicted[rows], confidence[rows].mean().item())


@dataclass(frozen=True)
class CorrectOrDrop:
    """All samples; of a client judged mislabeled what `correct` takes, nothing if its labels are nearly all wrong."""

    correct: ConfidentOfTheMislabeled
    max_share: float  # of wrong labels, by the server's estimate, from which on a client is dropped

    def __call__(self, site: Site) -> Samples:
        return nothing() if self.idle(site.order) else self.correct(site)

    def of_many(self, sites: Sequence[Site]) -> list[Samples]:
        """Each client's samples, of clients that share the model."""
        busy = [site for site in sites if not self.idle(site.order)]
        corrected = iter(self.correct.of_many(busy) if busy else ())
        return [nothing() if self.idle(site.order) else next(corrected) for site in sites]

    def idle(self, order: Order) -> bool:
        """Whether there is nothing to train on, whatever the client has."""
        return order.verdict.group == "mislabeled" and (order.verdict.suspicion or 0.0) >= self.max_share


@dataclass(frozen=True)
class WithoutHeldOut:
    """What another selection takes, less the rows that are held out to try models on."""

    select: Select
    held_out: HeldOut

    def __call__(self, site: Site) -> Samples:
        return self._less(site, self.select(site))

    @property
    def of_many(self) -> OfMany[Samples] | None:
        """Each client's samples, of clients that share the model."""
        of_many = ability(self.select, "of_many")
        if of_many is None:
            return None
        return lambda sites: [self._less(site, own) for site, own in zip(sites, of_many(sites), strict=True)]

    def idle(self, order: Order) -> bool:
        """Whether the other selection has nothing."""
        idle = ability(self.select, "idle")
        return bool(idle and idle(order))

    def _less(self, site: Site, samples: Samples) -> Samples:
        every = self.held_out.every(site.y.shape[0])
        if every is None or site.order.verdict.group == "mislabeled":
            return samples
        kept = samples.rows % every != 0
        return Samples(samples.rows[kept], samples.labels[kept], samples.reliability)


def _likeliest_class(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The probability of the likeliest class (N,), and that class (N,)."""
    logs, predicted = log_probs(logits).max(dim=0)
    return logs.exp_(), predicted
