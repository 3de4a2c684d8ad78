"""Numbers of a report, clipped and with noise, before they leave a site."""

from __future__ import annotations

from math import inf
from secrets import SystemRandom

from fedpca.core import Report
from fedpca.sites.settings import ReportPrivacy

RANGES = {  # of what can be negative or a share
    "dispersion": (-inf, inf),
    "slope": (-inf, inf),
    "confidence": (0.0, 1.0),
}
_RANDOM = SystemRandom()  # not the run's seed: the server knows that, and could take the noise off again


def privatize(report: Report, privacy: ReportPrivacy) -> Report:
    """The same report with each number clipped, with noise, and back in the range that it can have."""
    if privacy.clip is None and not privacy.noise:
        return report
    return {
        name: [_privatize(number, name, privacy) for number in value]
        if isinstance(value, list)
        else _privatize(value, name, privacy)
        for name, value in report.items()
    }


def _privatize(number: float, name: str, privacy: ReportPrivacy) -> float:
    limit = inf if privacy.clip is None else privacy.clip
    low, high = RANGES.get(name.rpartition("/")[2], (0.0, inf))
    noisy = min(max(number, -limit), limit) + _RANDOM.gauss(0.0, privacy.noise)
    return min(max(noisy, low), high)
