"""How states become one under a method's weights: robust in place of a mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpca.core import Params
from fedpca.parts.server.aggregate import as_state
from fedpca.parts.server.robust import GeometricMedian, UpdateCollection, geometric_weights

VECTORS = ("weights", "buffers", "counters")
EVEN = 1e-12  # by which a sum of weights may miss one half
ALL = 0.499  # of the weight at either end: what a trimmed mean leaves out at most


@dataclass(frozen=True)
class CoordinateRule:
    """Each entry of the state from the clients' values of that entry and their weights."""

    rule: Callable[[Tensor, Tensor], Tensor]  # values (K, n), weights (K,) -> (n,)

    def __call__(self, states: UpdateCollection, weights: Tensor) -> Params:
        return as_state(Params(*(self._vector(states, name, weights) for name in VECTORS)), states.start)

    def _vector(self, states: UpdateCollection, name: str, weights: Tensor) -> Tensor:
        result = torch.empty(len(getattr(states.start, name)), dtype=torch.float64)
        for place, rows in states.blocks(name):
            result[place] = self.rule(rows, weights)
        return result


@dataclass(frozen=True)
class TrimmedMean:
    """The weighted mean of each entry without the `share` of all weight at either end, and the largest client there.

    Of a client that weighs more than the share a part would stay in the mean, wherever it stands.
    """

    share: float

    def __call__(self, rows: Tensor, weights: Tensor) -> Tensor:
        return trimmed_mean(rows, weights, max(self.share, min(float(weights.max()), ALL)))


@dataclass(frozen=True)
class GeometricRule:
    """The point of least summed distance to the states, by their weights."""

    rule: GeometricMedian

    def __call__(self, states: UpdateCollection, weights: Tensor) -> Params:
        return states.mean(geometric_weights(states.gram(), weights, self.rule))


def weighted_median(rows: Tensor, weights: Tensor) -> Tensor:
    """The value of each column (n,) on either side of which lies half of the weight; the mean of two if it is even."""
    ranked, order = rows.sort(dim=0)
    below = weights[order].cumsum(dim=0)
    low = (below < 0.5 - EVEN).sum(dim=0, keepdim=True).clamp_max(len(rows) - 1)
    high = (below <= 0.5 + EVEN).sum(dim=0, keepdim=True).clamp_max(len(rows) - 1)
    return ((ranked.gather(0, low).double() + ranked.gather(0, high).double()) / 2).squeeze(0)


def trimmed_mean(rows: Tensor, weights: Tensor, share: float) -> Tensor:
    """The mean of each column (n,) without a share of the weight at either end; a client may count in part."""
    ranked, order = rows.sort(dim=0)
    own = weights[order]
    above = own.cumsum(dim=0)
    kept = (above.clamp_max(1 - share) - (above - own).clamp_min(share)).clamp_min(0)
    return (kept * ranked.double()).sum(dim=0) / kept.sum(dim=0)
