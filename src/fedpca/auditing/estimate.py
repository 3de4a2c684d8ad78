"""From the clients' summaries to each one's share of wrong labels, how sure that is, and who is judged mislabeled.

Reads summaries alone, so that data in one place and real sites give the same numbers. Three measures are used, each
against the clients whose labels go well with the model: the confident joint, the slope of labels on predictions, and
the share of labels that are predicted. Wrong labels change all three; rare images and few classes change some of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import median_high, median_low, stdev

from fedpca.auditing.calibration import Calibration, pooled_scores
from fedpca.auditing.confused import Confusion, confused_classes, reference_rates
from fedpca.auditing.summary import Summary, Tell
from fedpca.core import Answer, ClientId
from fedpca.methods.identify import AutoSettings
from fedpca.parts.server.wrong_labels import (
    INTERVAL,
    MIN_TO_COMPARE,
    Excess,
    by_agreement,
    by_slope,
    label_numbers,
    learned,
    reference_of,
)

MANY = 6  # reference clients, from which on their spread is read from the middle ones: one liar does not change it
MAX_UNFAMILIAR = 0.1  # share by which the models may be less sure of a client's images than of the reference's
UNLIKE = "the models are less sure of its images than of others', so that right labels look doubtful too"
MAD = 1.4826  # times the median deviation is the standard deviation, of normal numbers


@dataclass(frozen=True)
class ReferenceLevel:
    """The clients that others are compared with: how many, the share that the joint shows of them, how it varies."""

    clients: tuple[ClientId, ...]
    base: float
    spread: float
    certainty: float  # of the models' predictions of their images

    def unfamiliar(self, summary: Summary) -> float:
        """By which share the models are less sure of a client's images than of these clients'; needs no labels.

        Wrong labels cannot lower this, since the models never saw them. Images unlike the others' do: there the models
        err, and labels that are right contradict them.
        """
        return max(0.0, 1 - summary.numbers.get("certainty", 0.0) / max(self.certainty, 1e-9))


@dataclass(frozen=True)
class ClientEstimate:
    """One client's labels."""

    images: int
    verdict: Answer
    reason: str  # one plain sentence
    share: float | None  # of wrong labels beyond what the reference clients share; None: nothing to compare with
    low: float | None  # ends of the 95 % interval; the upper one includes what all might share
    high: float | None
    why_no_interval: str | None = None
    confused: tuple[Confusion, ...] | None = None  # None: the client tells its rate alone, or nothing to compare with
    told: Tell = "all"
    list_warning: str | None = None  # why more right labels may be on its list than was asked for


@dataclass(frozen=True)
class Estimates:
    """What an audit found, before anybody looks at single rows."""

    clients: Mapping[ClientId, ClientEstimate]
    reference: ReferenceLevel | None
    calibration: Calibration
    not_tested: tuple[tuple[ClientId | None, str, str], ...] = field(default=())  # client or all, what, why


def draws_list(verdict: Answer, list_warning: str | None) -> bool:
    """Whether single rows of a client are listed: not where right labels look doubtful, unless many are wrong."""
    return list_warning is None or verdict == "mislabeled"


def estimate(summaries: Mapping[ClientId, Summary]) -> Estimates:
    """Everybody's share, interval, verdict and confused classes, and what single rows are compared with."""
    settings = AutoSettings()
    numbers = {client: own for client, summary in summaries.items() if (own := label_numbers(summary.numbers))}
    slopes = reference_of(numbers, settings.min_learned)
    if slopes is None:
        return _without_reference(summaries, _why_no_reference(summaries, settings))
    two = {c: (by_slope(own, slopes), by_agreement(own, slopes)) for c, own in numbers.items()}
    reference = _reference_level(summaries, two, settings)
    if reference is None:
        return _without_reference(summaries, "too few clients have labels that go well with the model")
    rates = reference_rates([summaries[c] for c in reference.clients])
    clients = {}
    for client, summary in summaries.items():
        found = _judge(client, summary, two.get(client), reference, settings)
        clients[client] = replace(found, confused=confused_classes(summary, rates), told=summary.tell)
    unjudged = tuple(
        (client, "its labels", own.reason) for client, own in clients.items() if own.verdict == "cannot tell"
    )
    return Estimates(clients, reference, pooled_scores([summaries[c] for c in reference.clients]), unjudged)


def _reference_level(
    summaries: Mapping[ClientId, Summary], two: Mapping[ClientId, tuple[Excess, Excess]], settings: AutoSettings
) -> ReferenceLevel | None:
    """The clients that neither measure shows to be above the others, and whose images are like most; three at least."""
    others = [c for c, own in two.items() if not _is_mislabeled(own, settings)]
    clear = [c for c in others if any(one.share + INTERVAL * one.error < settings.max_unseen for one in two[c])]
    chosen = clear if len(clear) >= MIN_TO_COMPARE else others
    if len(chosen) < MIN_TO_COMPARE:
        return None
    certainties = {c: summaries[c].numbers.get("certainty", 0.0) for c in chosen}
    certainty = median_low(certainties.values())
    alike = [c for c in chosen if certainties[c] >= (1 - MAX_UNFAMILIAR) * certainty]
    chosen = alike if len(alike) > MIN_TO_COMPARE else chosen  # each of them is compared with the others
    levels = [summaries[c].numbers.get("off_diagonal", 0.0) for c in chosen]
    base = median_low(levels)
    spread = MAD * median_high([abs(own - base) for own in levels]) if len(levels) >= MANY else stdev(levels)
    return ReferenceLevel(tuple(chosen), base, spread, certainty)


def _is_mislabeled(measures: Sequence[Excess], settings: AutoSettings) -> bool:
    """Whether every measure shows enough wrong labels, and is sure of it."""
    return all(one.share >= settings.share and one.share > settings.certainty * one.error for one in measures)


def by_joint(summary: Summary, reference: ReferenceLevel) -> Excess:
    """By how much the confident joint exceeds the reference's, of the labels that could; with both sides' errors."""
    own, room = summary.numbers.get("off_diagonal", 0.0), max(1 - reference.base, 0.05)
    near = (own * summary.images + 1) / (summary.images + 2)
    sampling = near * (1 - near) / summary.images
    count = len(reference.clients)
    error = sqrt(max(sampling, reference.spread**2) + 1.57 * reference.spread**2 / count)  # pi / 2: of a median
    return Excess((own - reference.base) / room, student(count - 1) * error / room)


def student(degrees: int) -> float:
    """By how much wider an interval is whose spread was read from few clients: Student's 97.5 % point over 1.96."""
    z, df = INTERVAL, max(1, degrees)
    more = (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    return 1 + more / z


def _judge(
    client: ClientId,
    summary: Summary,
    two: tuple[Excess, Excess] | None,
    reference: ReferenceLevel,
    settings: AutoSettings,
) -> ClientEstimate:
    others = len(set(reference.clients) - {client})
    if two is None:
        return _untold(summary, "its predictions do not vary, or it told numbers that cannot be")
    if others < MIN_TO_COMPARE:
        return _untold(summary, f"there are {others} clients to compare with, and three are needed")
    joint, unfamiliar = by_joint(summary, reference), reference.unfamiliar(summary)
    verdict = _verdict(joint, two, unfamiliar, settings)
    share, low, high = _interval(verdict, joint, two, unfamiliar)
    top = 1 - (1 - high) * (1 - reference.base)  # all might share what the reference shows
    reason = _reason(verdict, share, joint, unfamiliar, settings)
    warning = UNLIKE if unfamiliar > MAX_UNFAMILIAR else None
    return ClientEstimate(
        summary.images, verdict, reason, share, min(share, low), max(share, top), list_warning=warning
    )


def _interval(verdict: Answer, joint: Excess, two: Sequence[Excess], unfamiliar: float) -> tuple[float, float, float]:
    """The share and the ends of its interval, each from 0 to 1; the lower end leaves out what unlike images explain.

    Of a client that is judged mislabeled the joint says how much; of others only what all measures show counts.
    """
    sure = verdict == "mislabeled"
    measures = (joint,) if sure else (joint, *two)
    middle = joint.share if sure else min(one.share for one in measures) - unfamiliar
    low = min(one.share - INTERVAL * one.error for one in measures) - unfamiliar
    ends = (middle, low, max(joint.share, middle) + INTERVAL * joint.error)
    share, bottom, top = (min(1.0, max(0.0, end)) for end in ends)
    return share, bottom, top


def _verdict(joint: Excess, two: Sequence[Excess], unfamiliar: float, settings: AutoSettings) -> Answer:
    """Mislabeled by all three measures; not so if the joint, which gives the interval, and another one rule it out.

    Nobody is judged mislabeled for what images that the models do not know explain as well.
    """
    if _is_mislabeled((joint, *two), settings) and joint.share - unfamiliar >= settings.share:
        return "mislabeled"
    ruled_out = [one.share + INTERVAL * one.error < settings.max_unseen for one in (joint, *two)]
    return "not mislabeled" if ruled_out[0] and any(ruled_out[1:]) else "cannot tell"


def _reason(verdict: Answer, share: float, joint: Excess, unfamiliar: float, settings: AutoSettings) -> str:
    if verdict == "mislabeled":
        return f"about {100 * share:.0f} % of its labels contradict what models learned from the other clients"
    if verdict == "not mislabeled":
        seen = f"{100 * settings.max_unseen:.0f} % wrong would have shown"
        return f"its labels go with the models of the other clients; {seen}"
    if unfamiliar > MAX_UNFAMILIAR:
        return "the models are less sure of its images than of others', which may be why its labels contradict them"
    if joint.error * INTERVAL > settings.max_unseen:
        return "too few images, or the other clients differ too much among themselves, to say"
    return "its labels go less well with the models than others', but wrong labels are not the only explanation"


def _untold(summary: Summary, why: str) -> ClientEstimate:
    return ClientEstimate(summary.images, "cannot tell", why, None, None, None, why)


def _without_reference(summaries: Mapping[ClientId, Summary], why: str) -> Estimates:
    clients = {c: replace(_untold(own, why), told=own.tell) for c, own in summaries.items()}
    return Estimates(clients, None, pooled_scores(list(summaries.values())), ((None, "whose labels are wrong", why),))


def _why_no_reference(summaries: Mapping[ClientId, Summary], settings: AutoSettings) -> str:
    numbers = [own for summary in summaries.values() if (own := label_numbers(summary.numbers))]
    if len(numbers) < MIN_TO_COMPARE:
        return f"there are {len(numbers)} clients to compare; three at least are needed"
    best = max(learned(own) for own in numbers)
    if best < settings.min_learned:
        return "the models learned too little from the other clients: their labels are hardly predicted anywhere"
    return "too few clients have labels that the models predict well enough to compare others with"
