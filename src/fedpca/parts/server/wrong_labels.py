"""Each client's share of wrong labels, how sure that is, and whether it follows that the client is mislabeled."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil, isfinite

from fedpca.core import Answer, ClientId, Estimate, Reference, Report
from fedpca.parts.server.identify import Finding, Findings, on_plane, rare_among

NEAR = 0.8  # slopes within this factor of the reference are of the same kind
AS_VARIED = 0.7  # of the median variation: who has less is no reference, since the model is unsure of its images
FIRST = 0.25  # share of the clients that are sure to have right labels: the reference stands where theirs begin
MIN_TO_COMPARE = 3  # clients that can be a reference
INTERVAL = 1.96  # standard errors: 95 %


@dataclass(frozen=True)
class LabelNumbers:
    """What one client reported of its labels (`parts.client.labels.label_evidence`)."""

    slope: float
    slope_error: float
    variation: float
    agreement: float
    agreement_error: float
    disagreement: float
    classes: float


@dataclass(frozen=True)
class Excess:
    """By how much more of a client's labels are wrong than of the reference, as one of two measures shows it."""

    share: float
    error: float


@dataclass(frozen=True)
class ShareOfWrongLabels:
    """Who is mislabeled, by two measures that wrong labels lower and that other causes lower only one at a time.

    The slope of labels on predictions: rare images do not lower it, since the model is unsure of them and says so. The
    share of labels that are predicted, once predictions are adapted to the client's class shares: a client with few
    classes does not lower it. What both show, against the clients with right labels, is the share of wrong labels.
    """

    min_share: float  # of wrong labels above the reference, from which on a client is mislabeled
    certainty: float  # standard errors by which both measures must exceed zero
    min_learned: float  # how far above chance the clients' labels are predicted, before anybody can be judged
    max_unseen: float  # whoever may exceed the reference by this share cannot be told to be innocent
    min_clients: int  # that are not mislabeled, to call some of them rare

    def __call__(self, reports: Mapping[ClientId, Report]) -> Findings | None:
        """Everybody's estimate and group; nobody is mislabeled or rare without evidence."""
        numbers = {c: own for c, report in reports.items() if (own := label_numbers(report))}
        reference = reference_of(numbers, self.min_learned)
        estimates = {c: self._estimate(own, reference) for c, own in numbers.items()}
        innocent = {c: r for c, r in reports.items() if c in estimates and estimates[c].answer != "mislabeled"}
        rare = rare_among(on_plane(innocent)) if len(innocent) >= self.min_clients else set()
        return {c: _finding(c, estimate, rare) for c, estimate in estimates.items()} or None

    def _estimate(self, numbers: LabelNumbers, reference: Reference | None) -> Estimate:
        high = min(1.0, numbers.disagreement + INTERVAL * numbers.agreement_error)
        if reference is None:
            return Estimate(None, 0.0, high, "cannot tell")
        measures = by_slope(numbers, reference), by_agreement(numbers, reference)
        low = min(own.share - INTERVAL * own.error for own in measures)
        answer = self._answer(measures)
        both = [min(1.0, max(0.0, own.share)) for own in measures]
        share = sum(both) / 2 if answer == "mislabeled" else min(both)
        return Estimate(share, min(max(0.0, low), share), max(high, share), answer, reference)

    def _answer(self, measures: tuple[Excess, Excess]) -> Answer:
        """Mislabeled by both measures, not so if one of them rules it out, else it cannot be told."""
        sure = all(own.share > self.certainty * own.error and own.share >= self.min_share for own in measures)
        if sure:
            return "mislabeled"
        innocent = any(own.share + INTERVAL * own.error < self.max_unseen for own in measures)
        return "not mislabeled" if innocent else "cannot tell"


def label_numbers(report: Report) -> LabelNumbers | None:
    """What a report says of labels; None if it lacks a number, or says what cannot be."""
    values = {name: report.get(name) for name in LabelNumbers.__dataclass_fields__}
    numbers = {name: value for name, value in values.items() if isinstance(value, float) and isfinite(value)}
    if len(numbers) < len(values):
        return None
    found = LabelNumbers(**numbers)
    shares = (found.agreement, found.disagreement, found.agreement_error, found.variation)
    possible = all(0 <= share <= 1 for share in shares) and found.slope_error >= 0 and found.classes >= 2
    return found if possible else None


def reference_of(numbers: Mapping[ClientId, LabelNumbers], min_learned: float) -> Reference | None:
    """The slope and agreement of right labels; None if there are fewer than three clients, or too little is learned.

    Of the clients whose predictions vary as most do, a quarter, two at least, have larger slopes than the first level;
    the reference is the median of the slopes near that. So as many as three quarters of the clients may be mislabeled,
    and liars cannot raise it unless they are a quarter: it is always between values of clients, or one of them.
    """
    varied = _lower_median([own.variation for own in numbers.values()])
    eligible = [own for own in numbers.values() if own.variation >= AS_VARIED * varied and own.variation > 0]
    if len(eligible) < MIN_TO_COMPARE or _from_the_top([learned(own) for own in numbers.values()]) < min_learned:
        return None
    level = _from_the_top([own.slope for own in eligible])
    near = [own.slope for own in eligible if NEAR * level < own.slope < level / NEAR]
    slope = _lower_median(near or [level])
    agreement = _from_the_top([own.agreement for own in numbers.values()])
    return Reference(slope, agreement) if slope > 0 and agreement > 0 else None


def learned(numbers: LabelNumbers) -> float:
    """How far above chance a client's labels are predicted: 0 as good as guessing, 1 always."""
    chance = 1 / numbers.classes
    return (1 - numbers.disagreement - chance) / (1 - chance)


def by_slope(numbers: LabelNumbers, reference: Reference) -> Excess:
    """1 - slope / reference, times (C - 1) / C: a random label is right once in C times."""
    scale = (numbers.classes - 1) / numbers.classes
    share = scale * (1 - numbers.slope / reference.slope)
    return Excess(share, scale * numbers.slope_error / reference.slope)


def by_agreement(numbers: LabelNumbers, reference: Reference) -> Excess:
    """1 - agreement / reference."""
    return Excess(1 - numbers.agreement / reference.agreement, numbers.agreement_error / reference.agreement)


def _finding(client: ClientId, estimate: Estimate, rare: Collection[ClientId]) -> Finding:
    if estimate.answer == "mislabeled":
        return Finding("mislabeled", estimate.share or 0.0, estimate)
    return Finding("rare" if client in rare else "common", estimate.share or 0.0, estimate)


def _from_the_top(values: list[float]) -> float:
    """The least of the largest quarter, of two at least: no fewer liars than that can raise it above honest values."""
    place = min(len(values), max(2, ceil(FIRST * len(values))))
    return sorted(values, reverse=True)[place - 1]


def _lower_median(values: list[float]) -> float:
    """The middle value, the lower one of two: a value that a client has, never one between a liar's and another."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0
