"""From the clients' states to the next global state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedpca.core import ClientId, Diagnosis, Params, Update, Verdict, Weights

Weigh = Callable[[Update, Verdict], float]


@dataclass(frozen=True)
class WeightedMean:
    """The mean of the states, weighted; updates are summed as they come, so memory does not grow with the clients."""

    weigh: Weigh

    def __call__(self, start: Params, diagnosis: Diagnosis) -> RunningMean:
        """An empty sum."""
        return RunningMean(start, diagnosis, self.weigh)


class RunningMean:
    """A weighted sum of states under way, in double precision."""

    def __init__(self, start: Params, diagnosis: Diagnosis, weigh: Weigh) -> None:
        self.start, self.diagnosis, self.weigh = start, diagnosis, weigh
        self.shares: dict[ClientId, float] = {}
        self.sums = Params(*(torch.zeros_like(v, dtype=torch.float64) for v in _vectors(start)))

    def add(self, client: ClientId, update: Update) -> None:
        """Adds a state times its weight."""
        share = self.weigh(update, self.diagnosis.get(client, Verdict())) if update.params else 0.0
        self.shares[client] = share
        if update.params and share > 0:
            for total, vector in zip(_vectors(self.sums), _vectors(update.params), strict=True):
                total.add_(vector, alpha=share)

    def finish(self) -> tuple[Params, Weights | None]:
        """The mean; the start itself if nobody has weight. Counters are rounded down, as truncation would."""
        total = sum(self.shares.values())
        if total == 0:
            return self.start, dict.fromkeys(self.shares, 0.0)
        weights, buffers, counters = (vector / total for vector in _vectors(self.sums))
        mean = Params(
            weights.to(self.start.weights.dtype),
            buffers.to(self.start.buffers.dtype),
            (counters + 1e-9).floor().to(self.start.counters.dtype),  # a mean of equal counters may fall just short
        )
        return mean, {client: share / total for client, share in self.shares.items()}


def _vectors(params: Params) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return params.weights, params.buffers, params.counters
