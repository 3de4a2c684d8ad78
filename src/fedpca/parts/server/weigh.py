"""How much each update counts, before the counts are divided by their sum: made once a round from the diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, isfinite, log
from statistics import median

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
    """N r exp(-q S): reliable samples, lifted where the model's features are little dispersed (FedPCA)."""

    q: float
    depth: float  # S counts as at least the median less this: one degenerate client cannot take all weight

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's dispersions."""
        lift = lifts(diagnosis, self.q, self.depth)
        return lambda client, update: update.size * update.reliability * lift.get(client, 1.0)


@dataclass(frozen=True)
class ByCapacity:
    """exp(-q S) alone: neither size nor reliability (FedPCA without robustness)."""

    q: float
    depth: float

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts under this round's dispersions."""
        lift = lifts(diagnosis, self.q, self.depth)
        return lambda client, update: lift.get(client, 1.0)


def lifts(diagnosis: Diagnosis, q: float, depth: float) -> Mapping[ClientId, float]:
    """exp(-q S) of every client that reported a dispersion, over the largest of them: that cancels in the weights."""
    given = {client: verdict.report.get("dispersion") for client, verdict in diagnosis.items()}
    known = {client: value for client, value in given.items() if isinstance(value, float) and isfinite(value)}
    if not known:
        return {}
    lowest = median(known.values()) - depth
    floored = {client: max(value, lowest) for client, value in known.items()}
    least = min(floored.values())
    return {client: exp(-q * (value - least)) for client, value in floored.items()}
