"""From the clients' states to the next global state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fedpca.core import ClientId, Diagnosis, Params, Update, Weights
from fedpca.parts.weigh import Weigh


@dataclass(frozen=True)
class WeightedMean:
    """The mean of the states; updates are summed as they come, so memory does not grow with the clients.

    With smoothing b < 1 the weights are b new + (1 - b) last, from the second round of a stage on. Those judged
    mislabeled stay at weight zero if `exclude`; who else has weight but trained on nothing stands for the old model.
    """

    weigh: Weigh
    smoothing: float = 1.0
    exclude: bool = False

    def __call__(self, start: Params, diagnosis: Diagnosis) -> RunningMean:
        """An empty sum."""
        excluded = {c for c, verdict in diagnosis.items() if self.exclude and verdict.group == "mislabeled"}
        last = {c: v.weight for c, v in diagnosis.items() if v.weight is not None and c not in excluded}
        smoothing = self.smoothing if last else 1.0
        return RunningMean(start, self.weigh, diagnosis, {} if smoothing == 1 else last, smoothing, excluded)


class RunningMean:
    """Two weighted sums of states under way, by the new counts and by the last weights, in double precision."""

    def __init__(
        self,
        start: Params,
        weigh: Weigh,
        diagnosis: Diagnosis,
        last: Mapping[ClientId, float],
        smoothing: float,
        excluded: set[ClientId],
    ) -> None:
        self.start, self.count, self.last, self.smoothing, self.excluded = (
            start,
            weigh(diagnosis),
            last,
            smoothing,
            excluded,
        )
        self.counts: dict[ClientId, float] = {}
        self.by_count, self.by_last = _zeros(start), _zeros(start) if last else None

    def add(self, client: ClientId, update: Update) -> None:
        """Adds a state times its weights."""
        trained = update.params is not None and client not in self.excluded
        self.counts[client] = self.count(client, update) if trained else 0.0
        _accumulate(self.by_count, update.params or self.start, self.counts[client])
        if self.by_last is not None:
            _accumulate(self.by_last, update.params or self.start, self.last.get(client, 0.0))

    def finish(self) -> tuple[Params, Weights | None]:
        """The mean and the weights; the start itself if nobody has weight."""
        fresh = sum(self.counts.values())
        kept = sum(self.last.get(client, 0.0) for client in self.counts)
        new = self.smoothing / fresh if fresh else 0.0
        old = (1 - self.smoothing if fresh else 1.0) / kept if kept else 0.0
        whole = new * fresh + old * kept
        if whole == 0:
            return self.start, dict.fromkeys(self.counts, 0.0)
        shares = {c: (new * n + old * self.last.get(c, 0.0)) / whole for c, n in self.counts.items()}
        total = _scaled_sum(self.by_count, new / whole, self.by_last, old / whole)
        return _as_state(total, self.start), shares


def _zeros(like: Params) -> Params:
    return Params(*(torch.zeros_like(vector, dtype=torch.float64) for vector in _vectors(like)))


def _accumulate(total: Params, state: Params, weight: float) -> None:
    if weight > 0:
        for sums, vector in zip(_vectors(total), _vectors(state), strict=True):
            sums.add_(vector, alpha=weight)


def _scaled_sum(one: Params, by_one: float, other: Params | None, by_other: float) -> Params:
    if other is None:
        return Params(*(vector * by_one for vector in _vectors(one)))
    pairs = zip(_vectors(one), _vectors(other), strict=True)
    return Params(*(a * by_one + b * by_other for a, b in pairs))


def _as_state(mean: Params, like: Params) -> Params:
    """In the model's own types; counters rounded down, as truncation would."""
    return Params(
        mean.weights.to(like.weights.dtype),
        mean.buffers.to(like.buffers.dtype),
        (mean.counters + 1e-9).floor().to(like.counters.dtype),  # a mean of equal counters may fall just short
    )


def _vectors(params: Params) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return params.weights, params.buffers, params.counters
