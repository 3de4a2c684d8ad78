"""Numbers of a report, clipped and with noise, before they leave a site."""

from __future__ import annotations

from math import inf
from secrets import SystemRandom

from fedpca.core import Report
from fedpca.sites.settings import Veil

RANGES = {
    "dispersion": (-inf, inf),
    "slope": (-inf, inf),
    "confidence": (0.0, 1.0),
}  # of what can be negative or a share
_CHANCE = SystemRandom()  # not the run's seed: the server knows that, and could take the noise off again


def veiled(report: Report, veil: Veil) -> Report:
    """The same report with each number clipped, with noise, and back in the range that it can have."""
    if veil.clip is None and not veil.noise:
        return report
    return {
        name: [_veiled(number, name, veil) for number in value]
        if isinstance(value, list)
        else _veiled(value, name, veil)
        for name, value in report.items()
    }


def _veiled(number: float, name: str, veil: Veil) -> float:
    most = inf if veil.clip is None else veil.clip
    low, high = RANGES.get(name.rpartition("/")[2], (0.0, inf))
    noisy = min(max(number, -most), most) + _CHANCE.gauss(0.0, veil.noise)
    return min(max(noisy, low), high)
