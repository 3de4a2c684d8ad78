"""How much each update counts, before the counts are divided by their sum: made once a round from the diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from statistics import median_high

from fedpca.core import ClientId, Diagnosis, Update

Count = Callable[[ClientId, Update], float]
Weigh = Callable[[Diagnosis], Count]


def by_size(diagnosis: Diagnosis) -> Count:
    """The number of samples it was trained on."""
    return lambda client, update: float(update.size)


@dataclass(frozen=True)
class ByLoss:
    """N l^q: the more the model errs on a client, the more it counts (simplified q-FedAvg)."""

    q: float
    by_size: bool  # False leaves N out

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's losses; over the largest, in logarithms, so that no power overflows."""
        given = {client: verdict.report.get("loss") for client, verdict in diagnosis.items()}
        logs = {client: log(max(value, 0.0) + 1e-10) for client, value in given.items() if isinstance(value, float)}
        top = max(logs.values(), default=0.0)
        power = {client: exp(self.q * (value - top)) for client, value in logs.items()}
        return lambda client, update: (update.size if self.by_size else 1.0) * power.get(client, 1.0)


@dataclass(frozen=True)
class ByTilt:
    """N exp(t l): a smooth maximum of the losses (TERM); t < 0 trusts clients on which the model errs less."""

    tilt: float
    by_size: bool  # False leaves N out

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's losses; over the largest, so that no power overflows."""
        given = {client: verdict.report.get("loss") for client, verdict in diagnosis.items()}
        tilted = {client: self.tilt * value for client, value in given.items() if isinstance(value, float)}
        top = max(tilted.values(), default=0.0)
        power = {client: exp(value - top) for client, value in tilted.items()}
        return lambda client, update: (update.size if self.by_size else 1.0) * power.get(client, 1.0)


@dataclass(frozen=True)
class BySharpness:
    """(s / sum s)^q: the sharper the loss around the global model, the more a client counts; sizes do not (FedISM)."""

    q: float

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's sharpness."""
        given = {client: verdict.report.get("sharpness") for client, verdict in diagnosis.items()}
        known = {client: max(value, 1e-10) for client, value in given.items() if isinstance(value, float)}
        total = sum(known.values())
        return lambda client, update: (known.get(client, 0.0) / total + 1e-10) ** self.q if total else 1.0


@dataclass(frozen=True)
class ByReliabilityAndCapacity:
    """N r exp(-q S): reliable samples, lifted where the model's features are little dispersed (FedPCA).

    The median client is that of the clients which are not judged mislabeled: they are the ones whose samples all count,
    and the mislabeled, who may be the majority, shall not say what is usual.
    """

    q: float
    max_lift: float  # of a client's weight per image, in multiples of the median client's

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's dispersions."""
        known = dispersions(diagnosis)
        usual = [value for client, value in known.items() if diagnosis[client].group != "mislabeled"]
        lift = lifts(known, usual or list(known.values()), self.q, self.max_lift)
        return lambda client, update: update.size * update.reliability * lift.get(client, 1.0)


@dataclass(frozen=True)
class ByCapacity:
    """exp(-q S) alone: neither size nor reliability (FedPCA without robustness). Everybody counts for the median."""

    q: float
    max_lift: float  # of a client's weight, in multiples of the median client's

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's dispersions."""
        known = dispersions(diagnosis)
        lift = lifts(known, list(known.values()), self.q, self.max_lift)
        return lambda client, update: lift.get(client, 1.0)


def dispersions(diagnosis: Diagnosis) -> dict[ClientId, float]:
    """The latest dispersion of each client that reported a finite one."""
    given = {client: verdict.report.get("dispersion") for client, verdict in diagnosis.items()}
    return {client: value for client, value in given.items() if isinstance(value, float) and isfinite(value)}


def lifts(known: Mapping[ClientId, float], usual: Sequence[float], q: float, max_lift: float) -> dict[ClientId, float]:
    """exp(-q (S - M)) of every client, at most `max_lift`: its weight per image over that of the median client.

    M is the median of the usual dispersions. Of an even number it is the upper of the two in the middle, which has the
    lower weight: with a mean of both, or the other, half of the clients could draw the bound after them.
    """
    if not known:
        return {}
    middle = median_high(usual)
    return {client: exp(min(-q * (value - middle), log(max_lift))) for client, value in known.items()}
