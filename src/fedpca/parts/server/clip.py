"""Updates that are shortened before they count: clipping of norms, and centered clipping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median_low

import torch
from torch import Tensor

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Params, Server, Update
from fedpca.parts.server.aggregate import as_state
from fedpca.parts.server.bounded import length, shortened
from fedpca.parts.server.robust import UpdateCollection, distances_to

CENTER = "center"  # kept between rounds: the step that the last round ended with


@dataclass(frozen=True)
class NormClipping:
    """Another rule over updates of which no step of the weights is longer than `radius`; buffers are left alone.

    Without a radius that is the length of the round's median update, the lower one of an even number, and updates are
    held until the last one is there.
    """

    rule: Aggregate
    radius: float | None

    def __call__(self, server: Server) -> ClippingFold:
        return ClippingFold(server.params, self.rule(server), self.radius)

    def with_inner(self, change: Callable[[Aggregate], Aggregate]) -> Aggregate:
        """The same around the other rule as changed."""
        return replace(self, rule=change(self.rule))


class ClippingFold:
    """Updates on their way to another rule."""

    def __init__(self, start: Params, inner: Fold, radius: float | None) -> None:
        self.start, self.inner, self.radius = start, inner, radius
        self.waiting: list[tuple[ClientId, Update]] = []

    def add(self, client: ClientId, update: Update) -> None:
        """Passes an update on, no longer than it may be; without a radius it waits."""
        if self.radius is None:
            self.waiting.append((client, update))
        else:
            self.inner.add(client, self._clipped(update, self.radius))

    def finish(self) -> Outcome:
        """What the other rule makes of them."""
        lengths = [length(own.params.weights, self.start.weights) for _, own in self.waiting if own.params]
        for client, update in self.waiting:
            self.inner.add(client, self._clipped(update, median_low(lengths)) if update.params else update)
        return self.inner.finish()

    def _clipped(self, update: Update, radius: float) -> Update:
        if update.params is None or (own := length(update.params.weights, self.start.weights)) <= radius:
            return update
        weights = shortened(update.params.weights, self.start.weights, radius / own)
        return replace(update, params=replace(update.params, weights=weights))


@dataclass(frozen=True)
class CenteredClipping:
    """Some steps from a center v to the mean of the updates, of each no more than `radius` beyond v (Karimireddy 2021).

    v moves by the mean of min(1, radius / |D_k - v|) (D_k - v), sizes ignored; without a radius that is the length of
    the round's median update. Buffers are averaged by size.
    """

    radius: float | None
    steps: int
    history: bool  # whether v begins where it ended last round; else at zero

    def __call__(self, server: Server) -> CenteredFold:
        return CenteredFold(server, self)


class CenteredFold(UpdateCollection):
    """Updates waiting for their center."""

    def __init__(self, server: Server, rule: CenteredClipping) -> None:
        super().__init__(server.params)
        self.rule, self.memory = rule, server.memory if rule.history else {}

    def finish(self) -> Outcome:
        """The start, moved by the center; whole clients have no weights in it, since they sum to less than 1."""
        if not self.states:
            return Outcome(self.start, memory=self.memory)
        center = self.memory.get(CENTER, torch.zeros_like(self.start.weights))
        gram = self.gram(beside=center)
        radius = median_low(gram.diagonal()[:-1].sqrt().tolist()) if self.rule.radius is None else self.rule.radius
        shares = clipped_center(gram, radius, self.rule.steps)
        moved = self._step(center, shares)
        rest = (self.sum_of(name, self.shares_by_size) for name in ("buffers", "counters"))
        state = as_state(Params(self.start.weights.double() + moved, *rest), self.start)
        return Outcome(state, memory={CENTER: moved.to(center.dtype)} if self.rule.history else {})

    def _step(self, center: Tensor, shares: Tensor) -> Tensor:
        """The sum of the clients' steps and the old center, with these shares (K + 1,)."""
        result = center.double() * shares[-1]
        for place, rows in self.blocks("weights"):
            result[place] += shares[:-1] @ (rows - self.start.weights[place]).double()
        return result


def clipped_center(gram: Tensor, radius: float, steps: int) -> Tensor:
    """The shares (K + 1,) of the K updates, and of the old center, in the new one, from inner products (K + 1, K + 1).

    All of it follows from these, so that no vector is touched in the steps.
    """
    shares = torch.zeros(len(gram), dtype=torch.float64)
    shares[-1] = 1.0
    for _ in range(steps):
        apart = distances_to(gram, shares)[:-1]
        scales = torch.where(apart > radius, radius / apart, 1.0)
        shares = (1 - scales.mean()) * shares
        shares[:-1] += scales / len(scales)
    return shares
