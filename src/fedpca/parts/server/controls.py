"""SCAFFOLD on the server: the common control variate, the mean of the clients' own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Server, Update
from fedpca.parts.client.controls import CONTROL
from fedpca.parts.pace import Pace


@dataclass(frozen=True)
class ControlVariates:
    """Another rule; beside it c, shown to clients, follows the mean of what their models say of their own c_k.

    c_k+ - c_k = (x - y_k) / length - c holds no c_k, so that clients send nothing but their models. c moves by the mean
    of it over those who trained, times their share of all clients.
    """

    rule: Aggregate
    pace: Pace
    clients: int | None  # all of them, whoever takes part; None: as many as make up this share
    participation: float

    def __call__(self, server: Server) -> ControlFold:
        return ControlFold(server, self.rule(server), self)

    def with_inner(self, change: Callable[[Aggregate], Aggregate]) -> Aggregate:
        """The same around the other rule as changed."""
        return replace(self, rule=change(self.rule))


class ControlFold:
    """The sum of the clients' mean gradients under way."""

    def __init__(self, server: Server, inner: Fold, rule: ControlVariates) -> None:
        self.start, self.inner, self.rule = server.params.weights, inner, rule
        self.before = server.shown.get(CONTROL, torch.zeros_like(self.start))
        self.sum, self.count = torch.zeros_like(self.start, dtype=torch.float64), 0

    def add(self, client: ClientId, update: Update) -> None:
        """Adds (x - y) / length; who took no step has no gradient to tell of."""
        self.inner.add(client, update)
        steps = self.rule.pace.steps(update.size)
        if update.params is not None and steps:
            self.sum.add_(self.start - update.params.weights, alpha=1 / self.rule.pace.length(steps))
            self.count += 1

    def finish(self) -> Outcome:
        """The other rule's outcome, and c."""
        outcome = self.inner.finish()
        if not self.count:
            return replace(outcome, shown={**outcome.shown, CONTROL: self.before})
        everybody = max(self.count, self.rule.clients or self.count / self.rule.participation)
        moved = (self.sum / self.count - self.before.double()) * (self.count / everybody)
        control = (self.before.double() + moved).to(self.start.dtype)
        return replace(outcome, shown={**outcome.shown, CONTROL: control})
