"""Aggregations that judge an update by its length: q-FFL's dynamic step, and screening by norm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappush, heappushpop

import torch

from fedpca.core import ClientId, Diagnosis, Fold, Outcome, Params, Server, Update, Verdict
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.weigh import by_size


@dataclass(frozen=True)
class DynamicStep:
    """q-FFL (Li et al. 2020): steps times loss^q, over a bound on how sharply the fair objective bends.

    Buffers have no gradient: they are averaged by size.
    """

    q: float
    lr: float

    def __call__(self, server: Server) -> DynamicFold:
        return DynamicFold(server, self)


class DynamicFold:
    """The sums of q-FFL's steps and bounds."""

    def __init__(self, server: Server, rule: DynamicStep) -> None:
        self.start, self.diagnosis, self.rule = server.params, server.diagnosis, rule
        self.steps, self.bound = torch.zeros_like(self.start.weights, dtype=torch.float64), 0.0
        self.mean = WeightedMean(by_size, smoothing=1.0)(server)

    def add(self, client: ClientId, update: Update) -> None:
        """Adds a client's step and bound."""
        self.mean.add(client, update)
        if update.params is None:
            return
        q, lr = self.rule.q, self.rule.lr
        loss = _number(self.diagnosis, client, "loss") + 1e-10
        step = (self.start.weights.double() - update.params.weights.double()) / lr
        self.steps.add_(step, alpha=loss**q)
        self.bound += q * loss ** (q - 1) * step.square().sum().item() + loss**q / lr

    def finish(self) -> Outcome:
        """The start less the summed steps over the summed bounds."""
        averaged = self.mean.finish().params
        if self.bound == 0:
            return Outcome(self.start)
        weights = (self.start.weights.double() - self.steps / self.bound).to(self.start.weights.dtype)
        return Outcome(Params(weights, averaged.buffers, averaged.counters))


@dataclass(frozen=True)
class WithoutLongest:
    """Another mean over all but the `count` updates with the longest steps (H-nobs); only those are held back."""

    count: int
    mean: WeightedMean

    def __call__(self, server: Server) -> ScreenedFold:
        return ScreenedFold(server.params, self.count, self.mean(server))


class ScreenedFold:
    """The longest updates so far, and the mean of the others."""

    def __init__(self, start: Params, count: int, inner: Fold) -> None:
        self.start, self.count, self.inner = start, count, inner
        self.longest: list[tuple[float, int, ClientId, Update]] = []
        self.order: list[ClientId] = []

    def add(self, client: ClientId, update: Update) -> None:
        """Holds the update back, or passes on one that turns out shorter; of equals the earlier is passed on."""
        self.order.append(client)
        length = float((update.params.weights - self.start.weights).norm()) if update.params else 0.0
        entry = (length, len(self.order), client, update)
        if len(self.longest) < self.count:
            heappush(self.longest, entry)
        else:
            _, _, passed, kept = heappushpop(self.longest, entry)
            self.inner.add(passed, kept)

    def finish(self) -> Outcome:
        """The mean of those passed on; the held back have weight zero."""
        outcome = self.inner.finish()
        weights = outcome.weights or {}
        return replace(outcome, weights={client: weights.get(client, 0.0) for client in self.order})


def _number(diagnosis: Diagnosis, client: ClientId, key: str) -> float:
    value = diagnosis.get(client, Verdict()).report.get(key)
    return value if isinstance(value, float) else 0.0
