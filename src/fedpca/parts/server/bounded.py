"""How far one client can move the global model, whatever it sends and claims: bounds around any aggregation rule.

Sizes and lengths are bounded against those of the median client, weights against an equal share. So all updates of a
round are held until the last one is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Params, Server, Update, Weights
from fedpca.parts.server.aggregate import as_state
from fedpca.parts.server.robust import GeometricMedian, UpdateCollection, geometric_weights

VECTORS = ("weights", "buffers", "counters")
EVEN = 1e-12  # by which a sum of weights may miss one half
Combine = Callable[[UpdateCollection, Tensor], Params]  # states and their weights (K,), which sum to 1 -> the new state


@dataclass(frozen=True)
class BoundedInfluence:
    """Another rule, with bounds on sizes, lengths and weights, and its mean replaced by a robust one if asked for.

    Where nobody exceeds a bound, and the rule stays a mean, the result is that of the other rule to the bit. A rule
    that gives clients no weights, such as a median, keeps its own way to combine states.
    """

    rule: Aggregate
    max_size: float  # that counts, in multiples of the median client's; infinite: no bound
    clip: float  # of an update's length, in multiples of the median client's
    max_weight: float  # of one client, in multiples of an equal share
    combine: Combine | None  # None: the rule's own mean

    def __call__(self, server: Server) -> BoundedFold:
        return BoundedFold(server.params, self.rule(server), self)


class BoundedFold:
    """Updates that wait for each other."""

    def __init__(self, start: Params, inner: Fold, bounds: BoundedInfluence) -> None:
        self.start, self.inner, self.bounds = start, inner, bounds
        self.updates: dict[ClientId, Update] = {}

    def add(self, client: ClientId, update: Update) -> None:
        """Holds an update."""
        self.updates[client] = update

    def finish(self) -> Outcome:
        """What the other rule makes of the updates within their bounds, within the bound of weights."""
        updates = clip_lengths(cap_sizes(self.updates, self.bounds.max_size), self.start, self.bounds.clip)
        for client, update in updates.items():
            self.inner.add(client, update)
        outcome = self.inner.finish()
        if not outcome.weights or not any(outcome.weights.values()):
            return outcome
        weights = self._capped(outcome.weights)
        if weights == outcome.weights and self.bounds.combine is None:
            return outcome
        return replace_mean(outcome, self._combined(updates, weights), weights)

    def _capped(self, weights: Weights) -> Weights:
        """The weights, none above its bound; that is never below what those who count would have evenly."""
        counting = sum(weight > 0 for weight in weights.values())
        return cap_weights(weights, max(self.bounds.max_weight / len(weights), 1 / counting))

    def _combined(self, updates: Mapping[ClientId, Update], weights: Weights) -> Params:
        """The state of these weights; who has one but trained on nothing stands for the old model."""
        states = UpdateCollection(self.start)
        counting = {client: weight for client, weight in weights.items() if weight > 0}
        for client in counting:
            states.add(client, replace(updates[client], params=updates[client].params or self.start))
        shares = torch.tensor(list(counting.values()), dtype=torch.float64)
        shares /= shares.sum()
        return self.bounds.combine(states, shares) if self.bounds.combine else states.mean(shares)


def cap_sizes(updates: Mapping[ClientId, Update], most: float) -> Mapping[ClientId, Update]:
    """The updates, of which none counts more samples than so many times the median of those that trained."""
    sizes = [update.size for update in updates.values() if update.params is not None]
    if most == inf or not sizes:
        return updates
    limit = max(1, int(most * median_low(sizes)))
    return {client: replace(own, size=limit) if own.size > limit else own for client, own in updates.items()}


def clip_lengths(updates: Mapping[ClientId, Update], start: Params, most: float) -> Mapping[ClientId, Update]:
    """The updates, each step at most so many times as long as the median one; weights and buffers each by themselves.

    Of an even number the lower median counts: half of the clients cannot raise it.
    """
    states = {client: update.params for client, update in updates.items() if update.params is not None}
    if most == inf or not states:
        return updates
    for name in ("weights", "buffers"):
        before = getattr(start, name)
        lengths = {client: length(getattr(state, name), before) for client, state in states.items()}
        limit = most * median_low(lengths.values())
        for client in [client for client, own in lengths.items() if own > limit]:
            changed: dict[str, Any] = {name: shortened(getattr(states[client], name), before, limit / lengths[client])}
            states[client] = replace(states[client], **changed)
    return {client: replace(own, params=states[client]) if client in states else own for client, own in updates.items()}


def length(vector: Tensor, start: Tensor) -> float:
    """The length of a step, in double precision, where no square overflows."""
    return float(torch.linalg.vector_norm(vector - start, dtype=torch.float64).item()) if len(vector) else 0.0


def shortened(vector: Tensor, start: Tensor, share: float) -> Tensor:
    """So much of the way from the start to a vector."""
    return torch.lerp(start.double(), vector.double(), share).to(vector.dtype)  # never in place: it may be doubles


def cap_weights(weights: Weights, most: float) -> Weights:
    """The weights, none above `most`; what that takes from some goes to the others in proportion."""
    capped: set[ClientId] = set()
    while over := _above(_filled(weights, capped, most), most) - capped:
        capped |= over
    return _filled(weights, capped, most) if capped else weights


def _above(weights: Weights, most: float) -> set[ClientId]:
    return {client for client, weight in weights.items() if weight > most * (1 + EVEN)}


def _filled(weights: Weights, capped: set[ClientId], most: float) -> dict[ClientId, float]:
    rest = sum(weight for client, weight in weights.items() if client not in capped)
    if not capped or rest <= 0:  # nobody else counts: they stay as they are
        return dict(weights)
    scale = (sum(weights.values()) - most * len(capped)) / rest
    return {client: most if client in capped else weight * scale for client, weight in weights.items()}


def replace_mean(outcome: Outcome, params: Params, weights: Weights) -> Outcome:
    """The outcome with another state and weights; where the rule shows clients its mean, they see the new one."""
    new = {id(old): own for old, own in zip(outcome.params.vectors, params.vectors, strict=True)}
    shown = {name: new.get(id(vector), vector) for name, vector in outcome.shown.items()}
    return replace(outcome, params=params, weights=weights, shown=shown)


# Robust in place of a mean


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
    """The weighted mean of each entry without the `share` of all weight at either end."""

    share: float

    def __call__(self, rows: Tensor, weights: Tensor) -> Tensor:
        return trimmed_mean(rows, weights, self.share)


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
