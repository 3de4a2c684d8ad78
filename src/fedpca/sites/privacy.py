"""Numbers of a report, clipped and with noise, before they leave a site."""

from __future__ import annotations

from math import inf
from secrets import SystemRandom

from fedpca.core import Report
from fedpca.screening import Bound, Claims
from fedpca.sites.settings import ReportPrivacy

ANY = Bound(-inf, inf)  # of a number that the method does not declare
_RANDOM = SystemRandom()  # not the run's seed: the server knows that, and could take the noise off again


def privatize(report: Report, privacy: ReportPrivacy, claims: Claims) -> Report:
    """The same report with each number clipped, with noise, and back in the bounds that its part declares."""
    if privacy.clip is None and not privacy.noise:
        return report
    return {
        name: [_privatize(number, claims.bounds.get(name, ANY), privacy) for number in value]
        if isinstance(value, list)
        else _privatize(value, claims.bounds.get(name, ANY), privacy)
        for name, value in report.items()
    }


def _privatize(number: float, bound: Bound, privacy: ReportPrivacy) -> float:
    limit = inf if privacy.clip is None else privacy.clip
    noisy = min(max(number, -limit), limit) + _RANDOM.gauss(0.0, privacy.noise)
    return min(max(noisy, bound.low), bound.high)
