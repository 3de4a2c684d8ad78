"""How far one client can move the global model, whatever it sends and claims: bounds around any aggregation rule.

Sizes and lengths are bounded against those of the median client, weights against an equal share, and both together
against what all others do. So all updates of a round are held until the last one is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from fedpca.core import Aggregate, ClientId, Outcome, Params, Server, Update, Weights, ability
from fedpca.parts.server.robust import UpdateCollection

ROUGH = 1e-3  # by which a length in single precision may be wrong, and far more
SAME = 1e-6  # by which a step that was shortened may miss its length
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
    max_share: float  # of one client in the round's step, if all others' are of the median length; 1: no bound
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
        if self.clip < inf or self.max_share < 1:
            return "aggregation.clip and max_share must be 0: privacy.central.clip bounds lengths"
        if ability(self.rule, "mean_by_verdicts"):
            return ""
        return ability(self.rule, "why_no_mean") or f"around {type(self.rule).__name__}"

    def __call__(self, server: Server) -> BoundedFold:
        return BoundedFold(server, self)

    def most(self, clients: int, counting: int) -> float:
        """The largest weight of one of so many clients, of whom so many count."""
        return max(min(self.max_weight / clients, self.max_share), 1 / counting)

    def longest(self, weight: float) -> float:
        """The longest step of a client of this weight, in multiples of the median one's; never less than that."""
        if self.max_share >= 1 or weight <= 0:
            return self.clip
        others = (1 - weight) * self.max_share / (1 - self.max_share)
        return min(self.clip, max(1.0, others / weight))


class BoundedFold:
    """Updates that wait for each other."""

    def __init__(self, server: Server, bounds: BoundedInfluence) -> None:
        self.server, self.start, self.bounds = server, server.params, bounds
        self.judged = {client for client, verdict in server.diagnosis.items() if verdict.group == "mislabeled"}
        self.updates: dict[ClientId, Update] = {}
        self.lengths: dict[str, dict[ClientId, float]] = {"weights": {}, "buffers": {}}

    def add(self, client: ClientId, update: Update) -> None:
        """Holds an update; its length is taken now, while it is in the processor's cache."""
        self.updates[client] = update
        if update.params is not None and (self.bounds.clip < inf or self.bounds.max_share < 1):
            for name, lengths in self.lengths.items():
                lengths[client] = rough_length(getattr(update.params, name), getattr(self.start, name))

    def finish(self) -> Outcome:
        """What the other rule makes of the updates within their bounds, within the bound of weights."""
        updates, said = cap_sizes(self.updates, self.bounds.max_size)
        trained = sum(update.params is not None for update in updates.values())
        equal = 1 / max(1, trained)
        updates, clipped = self._clip(updates, dict.fromkeys(updates, equal))
        outcome = self._aggregate(updates)
        if not outcome.weights or not any(outcome.weights.values()):
            updates, told = self._cap_shares(updates, trained) if outcome.weights is None else (updates, {})
            outcome = self._aggregate(updates) if told else outcome
            return replace(outcome, bounded=joint(outcome.bounded, said, told, clipped))
        weights = self._capped(outcome.weights)
        tighter = {
            c: weight for c, weight in weights.items() if self.bounds.longest(weight) < self.bounds.longest(equal)
        }
        updates, shorter = self._clip(updates, tighter) if tighter else (updates, {})
        words = joint(outcome.bounded, said, clipped, lowered(outcome.weights, weights, "weight"), shorter)
        outcome = replace(outcome, bounded=words)
        if weights == outcome.weights and not shorter and self.bounds.combine is None:
            return outcome
        return replace_mean(outcome, self._combined(updates, weights), weights)

    def _aggregate(self, updates: Mapping[ClientId, Update]) -> Outcome:
        """What the other rule makes of these updates."""
        fold = self.bounds.rule(self.server)
        for client, update in updates.items():
            fold.add(client, update)
        return fold.finish()

    def _clip(self, updates: Mapping[ClientId, Update], weights: Weights) -> tuple[Mapping[ClientId, Update], Words]:
        """The updates, none longer than a client of its weight may send."""
        limits = {client: self.bounds.longest(weight) for client, weight in weights.items()}
        return clip_lengths(updates, self.start, limits, self.lengths)

    def _cap_shares(self, updates: Mapping[ClientId, Update], trained: int) -> tuple[Mapping[ClientId, Update], Words]:
        """The updates with sizes that are no larger shares than weights may be, for a rule that shows no weights."""
        total = sum(update.size for update in updates.values())
        if not total or not trained:
            return updates, {}
        shares = {client: update.size / total for client, update in updates.items()}
        capped = cap_weights(shares, self.bounds.most(trained, trained))
        words = lowered(shares, capped, "share of the samples")
        return {c: replace(own, size=int(capped[c] * total)) if words else own for c, own in updates.items()}, words

    def _capped(self, weights: Weights) -> Weights:
        """The weights, none above its bound; that is never below what those who count would have evenly.

        Who is judged mislabeled is one of those who share equally, also where a rule has left its update out before.
        """
        counting = sum(weight > 0 for weight in weights.values())
        return cap_weights(weights, self.bounds.most(len(weights.keys() | self.judged), counting))

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


def lowered(before: Weights, after: Weights, what: str) -> Words:
    """Whose weight, or what else is told, was too large."""
    return {
        client: f"{what} {own:.3g} lowered to {after[client]:.3g}"
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
    updates: Mapping[ClientId, Update],
    start: Params,
    most: Mapping[ClientId, float],
    lengths: Mapping[str, Mapping[ClientId, float]],
) -> tuple[Mapping[ClientId, Update], Words]:
    """The updates, each at most so many times as long as the median one; weights and buffers each by themselves.

    Of an even number the lower median counts: half of the clients cannot raise it. `lengths` may be rough: those near
    the limit are measured again.
    """
    words: dict[ClientId, str] = {}
    clipped = dict(updates)
    for name, rough in lengths.items():
        before = getattr(start, name)
        if not len(before) or not rough or not (near := _near_their_limits(rough, most)):
            continue
        median = length(getattr(updates[_median_client(rough)].params, name), before)
        for client in near:
            state, limit = updates[client].params, most[client] * median
            if state is None or (exact := length(getattr(state, name), before)) <= limit * (1 + SAME):
                continue
            changed: dict[str, Any] = {name: shortened(getattr(state, name), before, limit / exact)}
            own = clipped[client].params or state
            clipped[client] = replace(clipped[client], params=replace(own, **changed))
            words.setdefault(client, f"{name} shortened to {limit / exact:.2g} of the step")
    return (clipped, words) if words else (updates, words)


def _median_client(rough: Mapping[ClientId, float]) -> ClientId:
    """Whose step is the median one, the lower of two."""
    ranked = sorted(rough, key=lambda client: rough[client] if isfinite(rough[client]) else inf)
    return ranked[(len(ranked) - 1) // 2]


def _near_their_limits(rough: Mapping[ClientId, float], most: Mapping[ClientId, float]) -> list[ClientId]:
    """Who may send more than so many times the median step, as far as rough lengths tell."""
    bounded = [client for client in rough if most.get(client, inf) < inf]
    median = rough[_median_client(rough)] if bounded else inf
    return [client for client in bounded if not rough[client] < most[client] * median * (1 - 2 * ROUGH)]


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
