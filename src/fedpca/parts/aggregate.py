"""From the clients' states to the next global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedpca.core import Aggregate, ClientId, Diagnosis, Fold, Outcome, Params, Update
from fedpca.parts.weigh import Count, Weigh


@dataclass(frozen=True)
class WeightedMean:
    """The mean of the states; updates are summed as they come, so memory does not grow with the clients.

    With smoothing b < 1 the weights are b new + (1 - b) last, over their sum, from the second round of a stage on; for
    a client without a last weight the new one counts as such. A client that keeps weight but trained on nothing
    contributes the old model.
    """

    weigh: Weigh
    smoothing: float = 1.0

    def __call__(self, start: Params, diagnosis: Diagnosis) -> RunningMean:
        """An empty sum."""
        last = {c: v.weight for c, v in diagnosis.items() if v.weight is not None and self.smoothing < 1}
        judged = {c for c, v in diagnosis.items() if v.group == "mislabeled"}
        return RunningMean(start, self.weigh(diagnosis), last, judged, self.smoothing)


class RunningMean:
    """Weighted sums of states under way, in double precision: by new counts, last weights and newcomers' counts."""

    def __init__(
        self, start: Params, count: Count, last: Mapping[ClientId, float], judged: set[ClientId], smoothing: float
    ) -> None:
        self.start, self.count, self.last, self.judged = start, count, last, judged
        self.smoothing = smoothing if last else 1.0
        self.counts: dict[ClientId, float] = {}
        self.by_count = _zeros(start)
        self.by_last = _zeros(start) if last else None
        self.of_newcomers = _zeros(start) if last else None

    def add(self, client: ClientId, update: Update) -> None:
        """Adds a state times its weights."""
        state = update.params or self.start
        self.counts[client] = self.count(client, update) if update.params is not None else 0.0
        _accumulate(self.by_count, state, self.counts[client])
        if self.by_last is not None and self.of_newcomers is not None:
            _accumulate(self.by_last, state, self.last.get(client, 0.0))
            _accumulate(self.of_newcomers, state, 0.0 if client in self.last else self.counts[client])

    def finish(self) -> Outcome:
        """The mean and the weights; the start itself if nobody has weight."""
        fresh = sum(self.counts.values())
        kept = sum(self.last.get(client, 0.0) for client in self.counts)
        if fresh == 0 and kept == 0:
            return Outcome(self.start, dict.fromkeys(self.counts, 0.0))
        new, newcomer, old = self._factors(fresh, kept)
        weights = {
            client: new * count + (old * self.last[client] if client in self.last else newcomer * count)
            for client, count in self.counts.items()
        }
        sums = ((self.by_count, new), (self.of_newcomers, newcomer), (self.by_last, old))
        mean = _combined([(total, by) for total, by in sums if total is not None])
        return Outcome(as_state(mean, self.start), weights)

    def _factors(self, fresh: float, kept: float) -> tuple[float, float, float]:
        """What multiplies a count, a newcomer's count on top of it, and a last weight, so that all weights sum to 1."""
        if fresh == 0:
            return 0.0, 0.0, 1 / kept
        arrived = sum(count for client, count in self.counts.items() if client not in self.last) / fresh
        there = self.counts.keys() | self.judged  # the dropped too: they leave after the smoothing
        known = sum(weight for client, weight in self.last.items() if client in there) or 1.0
        rest, old = 1 - self.smoothing, (1 - self.smoothing) * (1 - arrived) / known
        total = self.smoothing + rest * arrived + old * kept
        return self.smoothing / fresh / total, rest / fresh / total, old / total


@dataclass(frozen=True)
class WithoutTheMislabeled:
    """Another rule over the clients that are not judged mislabeled; those have weight zero, whatever they had last."""

    rule: Aggregate

    def __call__(self, start: Params, diagnosis: Diagnosis) -> ExcludingFold:
        """The other rule's empty fold, and whom to keep from it."""
        excluded = {client for client, verdict in diagnosis.items() if verdict.group == "mislabeled"}
        return ExcludingFold(self.rule(start, diagnosis), excluded)


class ExcludingFold:
    """Passes on the updates of all but some."""

    def __init__(self, inner: Fold, excluded: set[ClientId]) -> None:
        self.inner, self.excluded = inner, excluded
        self.order: list[ClientId] = []

    def add(self, client: ClientId, update: Update) -> None:
        """Passes an update on, or passes over it."""
        self.order.append(client)
        if client not in self.excluded:
            self.inner.add(client, update)

    def finish(self) -> Outcome:
        """The other rule's outcome, with zeros for those passed over where it has weights."""
        return self._with_zeros(self.inner.finish())

    def _with_zeros(self, outcome: Outcome) -> Outcome:
        sides = {side: self._with_zeros(own) for side, own in outcome.sides.items()}
        if (weights := outcome.weights) is None:
            return replace(outcome, sides=sides)
        return replace(outcome, sides=sides, weights={client: weights.get(client, 0.0) for client in self.order})


def _zeros(like: Params) -> Params:
    return Params(*(torch.zeros_like(vector, dtype=torch.float64) for vector in _vectors(like)))


def _accumulate(total: Params, state: Params, weight: float) -> None:
    if weight > 0:
        for sums, vector in zip(_vectors(total), _vectors(state), strict=True):
            if sums.numel():
                sums.add_(vector, alpha=weight)


def _combined(sums: Sequence[tuple[Params, float]]) -> Params:
    first, *others = sums
    total = Params(*(vector * first[1] for vector in _vectors(first[0])))
    for other, factor in others:
        _accumulate(total, other, factor)
    return total


def as_state(mean: Params, like: Params) -> Params:
    """In the model's own types; counters rounded down, as truncation would."""
    return Params(
        mean.weights.to(like.weights.dtype),
        mean.buffers.to(like.buffers.dtype),
        (mean.counters + 1e-9).floor().to(like.counters.dtype),  # a mean of equal counters may fall just short
    )


def _vectors(params: Params) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return params.weights, params.buffers, params.counters
