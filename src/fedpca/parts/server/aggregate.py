"""From the clients' states to the next global state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Params, Server, Update, ability
from fedpca.parts.server.weigh import Count, Weigh


@dataclass(frozen=True)
class WeightedMean:
    """The mean of the states; updates are summed as they come, so memory does not grow with the clients.

    With smoothing b < 1 the weights are b new + (1 - b) last, over their sum, from the second round of a stage on; for
    a client without a last weight the new one counts as such. A client that keeps weight but trained on nothing
    contributes the old model.
    """

    weigh: Weigh
    smoothing: float

    @property
    def mean_by_verdicts(self) -> bool:
        """Sizes and reliabilities come with updates; states do not matter."""
        return True

    def __call__(self, server: Server) -> RunningMean:
        diagnosis = server.diagnosis
        last = {c: v.weight for c, v in diagnosis.items() if v.weight is not None and self.smoothing < 1}
        judged = {c for c, v in diagnosis.items() if v.group == "mislabeled"}
        return RunningMean(server.params, self.weigh(diagnosis), last, judged, self.smoothing)


class RunningMean:
    """Weighted sums of states under way, in double precision: by new counts, last weights and newcomers' counts."""

    def __init__(
        self, start: Params, count: Count, last: Mapping[ClientId, float], judged: set[ClientId], smoothing: float
    ) -> None:
        self.start, self.count, self.last, self.judged = start, count, last, judged
        self.smoothing = smoothing if last else 1.0
        self.counts: dict[ClientId, float] = {}
        self.sums = Sums(start, 3 if last else 1)  # by count, last weight, and newcomers' counts

    def add(self, client: ClientId, update: Update) -> None:
        """Adds a state times its weights."""
        state = update.params or self.start
        self.counts[client] = self.count(client, update) if update.params is not None else 0.0
        if not self.last:
            self.sums.add(state, (self.counts[client],))
        elif client in self.last:
            self.sums.add(state, (self.counts[client], self.last[client], 0.0))
        else:
            self.sums.add(state, (self.counts[client], 0.0, self.counts[client]))

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
        mean = self.sums.combined((new, old, newcomer) if self.last else (new,))
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

    @property
    def mean_by_verdicts(self) -> bool:
        """As the other rule is."""
        return bool(ability(self.rule, "mean_by_verdicts"))

    def __call__(self, server: Server) -> ExcludingFold:
        excluded = {client for client, verdict in server.diagnosis.items() if verdict.group == "mislabeled"}
        return ExcludingFold(self.rule(server), excluded)


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


class Sums:
    """Several weighted sums of the same states, in double precision; small states are added some at a time."""

    def __init__(self, like: Params, count: int) -> None:
        self.totals = [torch.zeros(count, len(vector), dtype=torch.float64) for vector in like.vectors]
        self.most = like.states_at_once
        self.waiting: list[tuple[Params, tuple[float, ...]]] = []
        rows = self.most if self.most > 1 else 0
        self.room = [torch.empty(rows, len(vector), dtype=torch.float64) for vector in like.vectors]

    def add(self, state: Params, weights: tuple[float, ...]) -> None:
        """Takes a state in, with its weight in each of the sums."""
        if any(weights):
            self.waiting.append((state, weights))
            if len(self.waiting) == self.most:
                self._add_waiting()

    def combined(self, factors: tuple[float, ...]) -> Params:
        """The sums times these factors, in one."""
        self._add_waiting()
        by = torch.tensor(factors, dtype=torch.float64)
        return Params(*(total.mul_(by[:, None]).sum(dim=0) for total in self.totals))

    def _add_waiting(self) -> None:
        """Adds what waits: the same states at a time whoever runs this, so that the digits are the same too."""
        states, weights = [state.vectors for state, _ in self.waiting], [weights for _, weights in self.waiting]
        self.waiting = []
        for total, room, *vectors in zip(self.totals, self.room, *states, strict=True):
            if len(vectors) > 1 and len(vectors[0]):
                stacked = torch.stack(vectors, out=room[: len(vectors)])
                total.addmm_(torch.tensor(weights, dtype=torch.float64).T, stacked)
            elif len(vectors) == 1:  # a large one: no copy
                for sums, weight in zip(total, weights[0], strict=True):
                    if weight:
                        sums.add_(vectors[0], alpha=weight)


def as_state(mean: Params, like: Params) -> Params:
    """In the model's own types; counters rounded down, as truncation would."""
    return Params(
        mean.weights.to(like.weights.dtype),
        mean.buffers.to(like.buffers.dtype),
        (mean.counters + 1e-9).floor().to(like.counters.dtype),  # a mean of equal counters may fall just short
    )
