"""How much more rare clients weigh, found by trying; and whether losses still fall, by which sharpness is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite, log
from statistics import median

import torch
from torch import Tensor

from fedpca.core import (
    NOBODY,
    Aggregate,
    ClientId,
    Diagnosis,
    Fold,
    Outcome,
    Params,
    Report,
    Server,
    Update,
    When,
    ability,
)
from fedpca.parts.client.probe import GAIN, MORE_RARE
from fedpca.parts.client.step import SETTLED
from fedpca.parts.server.aggregate import Sums
from fedpca.parts.server.weigh import Count

LIFT = "lift"  # note: what rare clients' weights are multiplied by
TRIED = "tried"  # note: by how much losses fell in the last trial of a larger lift
PACE = "pace"  # memory: the last loss of the median client, and how fast it falls


@dataclass(frozen=True)
class FollowGains:
    """Raises the lift of rare clients while that lowers the losses of rare and common clients together, else lowers it.

    Each group counts by its median client: one client, or one that lies, moves neither. What rare clients gain counts
    `rare_counts` times. The lift changes by one `factor` a round, between 1 and `max_lift`; without gains it stays.
    """

    factor: float
    max_lift: float
    rare_counts: float

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """The same opinions, with the lift in everybody's notes."""
        gain = gain_of(diagnosis, reports, self.rare_counts)
        if gain is None:
            return diagnosis
        lift = lift_of(diagnosis) * (self.factor if gain > 0 else 1 / self.factor)
        notes = {LIFT: min(self.max_lift, max(1.0, lift)), TRIED: gain}
        return {c: v.having(notes={**v.notes, **notes}) for c, v in diagnosis.items()}


def gain_of(diagnosis: Diagnosis, reports: Mapping[ClientId, Report], rare_counts: float) -> float | None:
    """By how much both groups' losses fall if rare clients weigh more; None if a group is silent."""
    gains = {c: gain for c, report in reports.items() if isinstance(gain := report.get(GAIN), float)}
    groups = {c: diagnosis.get(c, NOBODY).group for c in gains}
    rare = [gain for c, gain in gains.items() if groups[c] == "rare"]
    common = [gain for c, gain in gains.items() if groups[c] == "common"]
    return rare_counts * median(rare) + median(common) if rare and common else None


def lift_of(diagnosis: Diagnosis) -> float:
    """What rare clients' weights are multiplied by; 1 at first."""
    return next((v.notes[LIFT] for v in diagnosis.values() if LIFT in v.notes), 1.0)


def rare_clients(diagnosis: Diagnosis) -> set[ClientId]:
    """Who is rare, once enough is learned to compare labels with anything."""
    return {c for c, v in diagnosis.items() if v.group == "rare" and v.estimate and v.estimate.reference}


def can_judge(diagnosis: Diagnosis) -> bool:
    """Whether enough is learned to compare labels with anything."""
    return any(v.estimate and v.estimate.reference for v in diagnosis.values())


@dataclass(frozen=True)
class ByLiftAndTrust:
    """N r, times the lift of rare clients, times the estimated share of right labels of those judged mislabeled."""

    lift: float | None  # None: that of the notes

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's opinions."""
        lift, rare = self.lift or lift_of(diagnosis), rare_clients(diagnosis)
        trust = {c: 1 - (v.suspicion or 0.0) for c, v in diagnosis.items() if v.group == "mislabeled"}
        factors = {**dict.fromkeys(rare, lift), **trust}
        return lambda client, update: update.size * update.reliability * factors.get(client, 1.0)


@dataclass(frozen=True)
class ShowMoreRare:
    """Another rule; clients are shown what `factor` times the weight of the rare ones would change, to try it."""

    rule: Aggregate
    factor: float

    @property
    def why_no_mean(self) -> str:
        """It shows clients a step of its own."""
        return "set method.fedpca.lift to a number, such as 1.5"

    def __call__(self, server: Server) -> RareFold:
        return RareFold(self.rule(server), server.params, rare_clients(server.diagnosis), self.factor)


class RareFold:
    """Passes updates on, and sums those of rare clients besides."""

    def __init__(self, inner: Fold, start: Params, rare: set[ClientId], factor: float) -> None:
        self.inner, self.rare, self.factor = inner, rare, factor
        self.sums, self.count = Sums(start, 1), 0.0

    def add(self, client: ClientId, update: Update) -> None:
        """Passes an update on."""
        self.inner.add(client, update)
        if client in self.rare and update.params is not None:
            self.sums.add(update.params, (float(update.size),))
            self.count += update.size

    def finish(self) -> Outcome:
        """The other rule's outcome, and the step from it to the mean with more weight for the rare."""
        outcome = self.inner.finish()
        share = sum(weight for client, weight in (outcome.weights or {}).items() if client in self.rare)
        if self.count == 0 or not 0 < share < 1:
            return outcome
        raised = self.factor * share / (1 + (self.factor - 1) * share)
        mean = self.sums.combined((1 / self.count,)).weights
        step = (mean - outcome.params.weights) * ((raised - share) / (1 - share))
        return replace(outcome, shown={**outcome.shown, MORE_RARE: step.to(outcome.params.weights.dtype)})


@dataclass(frozen=True)
class ShowWhetherSettled:
    """Another rule; clients are told while the loss of the median client falls by less than `min_pace` a round.

    Not before enough is learned to judge labels: at the very beginning losses stand still too. Once told, they are told
    so until the loss falls twice as fast.
    """

    rule: Aggregate
    min_pace: float  # of the loss's logarithm, smoothed over rounds
    smoothing: float  # share of the new pace

    @property
    def mean_by_verdicts(self) -> bool:
        """As the other rule is: the pace is of what clients report."""
        return bool(ability(self.rule, "mean_by_verdicts"))

    @property
    def why_no_mean(self) -> str:
        """As of the other rule."""
        return ability(self.rule, "why_no_mean") or ""

    def __call__(self, server: Server) -> SettledFold:
        min_pace = self.min_pace * (2 if SETTLED in server.shown else 1)
        return SettledFold(self.rule(server), self._pace(server), min_pace)

    def _pace(self, server: Server) -> Tensor | None:
        """The last loss and its pace (2,); None where nobody says its loss, or too little is learned."""
        if not can_judge(server.diagnosis):
            return None
        trusted = [v.report.get("loss") for v in server.diagnosis.values() if v.group != "mislabeled"]
        losses = [loss for loss in trusted if isinstance(loss, float) and loss > 0]
        if not losses:
            return None
        loss, before = median(losses), server.memory.get(PACE)
        if before is None:
            return torch.tensor([loss, inf], dtype=torch.float64)
        last, pace = before.tolist()
        fall = log(last / loss)
        smooth = self.smoothing * fall + (1 - self.smoothing) * pace if isfinite(pace) else fall
        return torch.tensor([loss, smooth], dtype=torch.float64)


class SettledFold:
    """Passes updates on; ends with the pace kept, and shown if it is slow."""

    def __init__(self, inner: Fold, pace: Tensor | None, min_pace: float) -> None:
        self.inner, self.pace, self.min_pace = inner, pace, min_pace
        self.add = inner.add

    def finish(self) -> Outcome:
        """The other rule's outcome, with the pace."""
        outcome = self.inner.finish()
        if self.pace is None:
            return outcome
        settled = {SETTLED: self.pace[1:].clone()} if self.pace[1] < self.min_pace else {}
        return replace(outcome, memory={**outcome.memory, PACE: self.pace}, shown={**outcome.shown, **settled})
