"""One noise filter made of every client's own, and shown to all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Report, Server, Update
from fedpca.parts.client.filter import FILTER
from fedpca.parts.noise_filter import NUMBERS, Filter, filter_of, joint_filter

SIZE = "size"  # note: what a client counted as when it sent its filter


@dataclass(frozen=True)
class ShareFilter:
    """Another rule; beside it the filter of all clients that ever sent one, each by its size, is shown to everybody."""

    rule: Aggregate
    published: bool

    def __call__(self, server: Server) -> FilterFold:
        return FilterFold(server, self.rule(server), self.published)


class FilterFold:
    """Filters that arrive with the updates."""

    def __init__(self, server: Server, inner: Fold, published: bool) -> None:
        self.server, self.inner, self.published = server, inner, published
        self.filters: dict[ClientId, Filter] = {}
        self.sizes: dict[ClientId, float] = {}
        for client, verdict in server.diagnosis.items():
            self._take(client, verdict.report, verdict.notes.get(SIZE, 0.0))

    def add(self, client: ClientId, update: Update) -> None:
        """Passes the update on and keeps its filter, in place of an older one."""
        self.inner.add(client, update)
        self._take(client, update.report, update.size)

    def finish(self) -> Outcome:
        """The other rule's outcome with the filter."""
        outcome = self.inner.finish()
        notes = {client: {**outcome.notes.get(client, {}), SIZE: size} for client, size in self.sizes.items()}
        shown = {FILTER: self.server.shown[FILTER]} if FILTER in self.server.shown else {}
        if self.filters:
            joint = joint_filter(list(self.filters.values()), list(self.sizes.values()), self.published)
            shown = {FILTER: torch.tensor(joint.numbers, dtype=torch.float64)}
        return replace(outcome, notes={**outcome.notes, **notes}, shown={**outcome.shown, **shown})

    def _take(self, client: ClientId, report: Report, size: float) -> None:
        numbers = report.get(FILTER)
        if isinstance(numbers, list) and len(numbers) == NUMBERS and size > 0:
            self.filters[client], self.sizes[client] = filter_of(numbers), size
