"""How far one client can move the global model, whatever it sends and claims: bounds around any aggregation rule.

Sizes and lengths are bounded against those of the median client, weights against an equal share. So all updates of a
round are held until the last one is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Params, Server, Update, Weights, ability
from fedpca.parts.server.aggregate import as_state
from fedpca.parts.server.robust import GeometricMedian, UpdateCollection, geometric_weights

VECTORS = ("weights", "buffers", "counters")
ROUGH = 1e-3  # by which a length in single precision may be wrong, and far more
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

    @property
    def mean_by_verdicts(self) -> bool:
        """As the other rule is, if lengths are not compared and no robust rule takes the mean's place."""
        return not self.why_no_mean and bool(ability(self.rule, "mean_by_verdicts"))

    @property
    def why_no_mean(self) -> str:
        """The settings that stand against it."""
        if self.combine is not None:
            return "aggregation.rule must be mean"
        if self.clip < inf:
            return "aggregation.clip must be 0: privacy.central.clip bounds lengths"
        if ability(self.rule, "mean_by_verdicts"):
            return ""
        return ability(self.rule, "why_no_mean") or f"around {type(self.rule).__name__}"

    def __call__(self, server: Server) -> BoundedFold:
        return BoundedFold(server.params, self.rule(server), self)


class BoundedFold:
    """Updates that wait for each other."""

    def __init__(self, start: Params, inner: Fold, bounds: BoundedInfluence) -> None:
        self.start, self.inner, self.bounds = start, inner, bounds
        self.updates: dict[ClientId, Update] = {}
        self.lengths: dict[str, dict[ClientId, float]] = {"weights": {}, "buffers": {}}

    def add(self, client: ClientId, update: Update) -> None:
        """Holds an update; its length is taken now, while it is in the processor's cache."""
        self.updates[client] = update
        if update.params is not None and self.bounds.clip < inf:
            for name, lengths in self.lengths.items():
                lengths[client] = rough_length(getattr(update.params, name), getattr(self.start, name))

    def finish(self) -> Outcome:
        """What the other rule makes of the updates within their bounds, within the bound of weights."""
        updates, said = cap_sizes(self.updates, self.bounds.max_size)
        updates, clipped = clip_lengths(updates, self.start, self.bounds.clip, self.lengths)
        for client, update in updates.items():
            self.inner.add(client, update)
        outcome = self.inner.finish()
        if not outcome.weights or not any(outcome.weights.values()):
            return replace(outcome, bounded=joint(outcome.bounded, said, clipped))
        weights = self._capped(outcome.weights)
        outcome = replace(outcome, bounded=joint(outcome.bounded, said, clipped, lowered(outcome.weights, weights)))
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


Words = Mapping[ClientId, str]  # what was bounded of a client


def joint(*several: Words) -> Words:
    """All that is said of each client."""
    clients = dict.fromkeys(client for words in several for client in words)
    return {client: ", ".join(words[client] for words in several if client in words) for client in clients}


def lowered(before: Weights, after: Weights) -> Words:
    """Whose weight was too large."""
    return {
        client: f"weight {own:.3g} lowered to {after[client]:.3g}"
        for client, own in before.items()
        if after[client] < own * (1 - EVEN)
    }


def cap_sizes(updates: Mapping[ClientId, Update], most: float) -> tuple[Mapping[ClientId, Update], Words]:
    """The updates, of which none counts more samples than so many times the median of those that trained."""
    sizes = [update.size for update in updates.values() if update.params is not None]
    if most == inf or not sizes:
        return updates, {}
    limit = max(1, int(most * median_low(sizes)))
    over = {client: own for client, own in updates.items() if own.size > limit}
    if not over:
        return updates, {}
    words = {client: f"{own.size:.4g} samples counted as {limit}" for client, own in over.items()}
    return {**updates, **{client: replace(own, size=limit) for client, own in over.items()}}, words


def clip_lengths(
    updates: Mapping[ClientId, Update], start: Params, most: float, lengths: Mapping[str, Mapping[ClientId, float]]
) -> tuple[Mapping[ClientId, Update], Words]:
    """The updates, each step at most so many times as long as the median one; weights and buffers each by themselves.

    Of an even number the lower median counts: half of the clients cannot raise it. `lengths` may be rough: those near
    the limit are measured again.
    """
    words: dict[ClientId, str] = {}
    clipped = dict(updates)
    for name, rough in lengths.items() if most < inf else ():
        before = getattr(start, name)
        if not len(before) or not rough:
            continue
        limit = most * _median_length(updates, name, before, rough)
        for client in [client for client, own in rough.items() if not own < limit * (1 - ROUGH)]:
            state = updates[client].params
            if state is None or (exact := length(getattr(state, name), before)) <= limit:
                continue
            changed: dict[str, Any] = {name: shortened(getattr(state, name), before, limit / exact)}
            own = clipped[client].params or state
            clipped[client] = replace(clipped[client], params=replace(own, **changed))
            words.setdefault(client, f"{name} shortened to {limit / exact:.2g} of the step")
    return (clipped, words) if words else (updates, words)


def _median_length(
    updates: Mapping[ClientId, Update], name: str, before: Tensor, rough: Mapping[ClientId, float]
) -> float:
    """The length of the median step, exactly."""
    ranked = sorted(rough, key=lambda client: rough[client] if isfinite(rough[client]) else inf)
    state = updates[ranked[(len(ranked) - 1) // 2]].params
    return length(getattr(state, name), before)


def rough_length(vector: Tensor, start: Tensor) -> float:
    """The length of a step in one pass, in the vector's own precision; infinite where a square overflows."""
    return float(torch.dist(vector, start)) if len(vector) else 0.0


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
