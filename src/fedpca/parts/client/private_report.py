"""Numbers of a report, clipped and with noise, before they leave a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isnan

from fedpca.core import Method, Report
from fedpca.errors import SettingsError
from fedpca.parts.accounting import noise_for
from fedpca.screening import Bound, Claims, claims_of
from fedpca.settings.privacy import Range, ReportPrivacy

ANY = Bound(-inf, inf)  # of a number that the method does not declare
NARROW = 2.0  # width of bounds that are a range by themselves: those of a share, or of a difference of two
Gauss = Callable[[], float]  # a draw of the standard normal distribution


def privatize(report: Report, privacy: ReportPrivacy, claims: Claims, gauss: Gauss, noise: float) -> Report:
    """The same report as it may leave; `noise` is what `noise_of_run` found for an epsilon."""
    if privacy.epsilon is not None:
        return _with_guarantee(report, privacy, claims, gauss, noise)
    if privacy.clip is None and not privacy.noise:
        return report
    limit = inf if privacy.clip is None else privacy.clip

    def changed(number: float, bound: Bound) -> float:
        return _within(min(max(number, -limit), limit) + privacy.noise * gauss(), bound)

    return {
        name: [changed(number, claims.bounds.get(name, ANY)) for number in value]
        if isinstance(value, list)
        else changed(value, claims.bounds.get(name, ANY))
        for name, value in report.items()
    }


def _with_guarantee(report: Report, privacy: ReportPrivacy, claims: Claims, gauss: Gauss, noise: float) -> Report:
    """Each declared number in its range with noise in proportion to the range, and nothing that is not declared.

    What is absent because of the data is told as a number too, so that its absence tells nothing.
    """
    said: dict[str, float | list[float]] = {}
    for key, bound in claims.bounds.items():
        value = report.get(key, bound.absent)
        if bound.public and key in report:
            said[key] = report[key]
        elif isinstance(value, int | float) and not bound.public:
            low, high = range_of(key, bound, privacy.ranges)
            clipped = low if isnan(value) else min(max(float(value), low), high)
            said[key] = _within(clipped + noise * (high - low) * gauss(), bound)
    return said


def _within(number: float, bound: Bound) -> float:
    return min(max(number, bound.low), bound.high)


def range_of(key: str, bound: Bound, ranges: Mapping[str, Range]) -> Range:
    """The lowest and the highest that counts of a number: as set, as the part declares, or all that it can be."""
    given = ranges.get(key) or ranges.get(key.rpartition("/")[2])  # in A+B every key stands under its side
    whole = (bound.low, bound.high) if bound.high - bound.low <= NARROW else None
    if (found := given or bound.usual or whole) is None:
        raise SettingsError(
            f"privacy.epsilon needs the range of {key!r}, which can be from {bound.low:g} to {bound.high:g}: set "
            f"privacy.ranges.{key}"
        )
    return max(found[0], bound.low), min(found[1], bound.high)


def numbers_by_round(method: Method, rounds: int, privacy: ReportPrivacy) -> list[int]:
    """How many numbers with noise a client reports at most in each round; a method of which that is open is refused."""
    found = {id(stage.recipe): _numbers(method.name, stage.recipe, privacy) for stage in method.stages}
    return [found[id(method.recipe(round))] for round in range(1, rounds + 1)]


def noise_of_run(method: Method, rounds: int, privacy: ReportPrivacy) -> float:
    """The deviation over a number's range with which all reports of a client spend the epsilon; 0 without one."""
    if privacy.epsilon is None:
        return 0.0
    return noise_for(privacy.epsilon, privacy.delta, sum(numbers_by_round(method, rounds, privacy)))


def numbers_in(claims: Claims) -> int:
    """How many numbers of a report get noise."""
    return sum(not bound.public for bound in claims.bounds.values())


def _numbers(name: str, recipe: object, privacy: ReportPrivacy) -> int:
    both = [claims_of(getattr(recipe, half)) for half in ("report", "train")]
    for claims in both:
        if claims.open:
            raise SettingsError(
                f"privacy.epsilon needs to know what a client can report, and {name} does not declare it: declare "
                "`claims` of its parts (CONTRIBUTING.md), or choose another method"
            )
        for key, bound in claims.bounds.items():
            if bound.many:
                raise SettingsError(
                    f"privacy.epsilon is for single numbers, and {name} reports {key!r}, a list: choose another method"
                )
            if not bound.public:
                range_of(key, bound, privacy.ranges)
    return sum(map(numbers_in, both))
