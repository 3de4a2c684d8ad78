"""Any method with bounds on what one client can do to its global model: `[aggregation]`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from fedpca.core import Aggregate, Method
from fedpca.methods.rfa import RFASettings
from fedpca.settings.experiment import AggregationSettings

if TYPE_CHECKING:
    from fedpca.parts.server.bounded import Combine

STEPS = (
    100  # of the geometric median: RFA's few, and its tolerance, end on the way where a client sends what is far away
)


def bounded(method: Method, settings: AggregationSettings) -> Method:
    """The method with its rules inside these bounds; the very method where nothing is bounded.

    >>> from fedpca import Plan, compose
    >>> from fedpca.settings.experiment import AggregationSettings
    >>> fedavg = compose("fedavg", Plan(rounds=3))
    >>> bounded(fedavg, AggregationSettings()) is fedavg
    True
    """
    if settings.is_off:
        return method
    return replace(
        method,
        stages=tuple(
            replace(stage, recipe=replace(stage.recipe, aggregate=_bounded(stage.recipe.aggregate, settings)))
            for stage in method.stages
        ),
    )


def _bounded(rule: Aggregate, settings: AggregationSettings) -> Aggregate:
    """The rule within bounds; of one that goes on from another's mean, that mean's weights are bounded."""
    from fedpca.parts.abilities import ability
    from fedpca.parts.server.bounded import BoundedInfluence

    size, clip, weight = settings.max_size or inf, settings.clip or inf, settings.max_weight or inf
    share, combine = settings.max_share or 1.0, _combination(settings)
    if ability(rule, "with_inner") is None:
        return BoundedInfluence(rule, size, clip, weight, share, combine)
    inside = _innermost(rule, lambda own: BoundedInfluence(own, inf, inf, weight, share, combine))
    return BoundedInfluence(inside, size, clip, inf, 1.0, None)


def _innermost(rule: Aggregate, change: Callable[[Aggregate], Aggregate]) -> Aggregate:
    """The rule with the one changed that it, or what is inside it, goes on from."""
    from fedpca.parts.abilities import ability

    with_inner = ability(rule, "with_inner")
    changed: Aggregate = with_inner(lambda own: _innermost(own, change)) if with_inner else change(rule)
    return changed


def _combination(settings: AggregationSettings) -> Combine | None:
    """How states become one under the method's weights; None: by the method's own mean."""
    from fedpca.parts.server.robust import GeometricMedian
    from fedpca.parts.server.robust_mean import CoordinateRule, GeometricRule, TrimmedMean, weighted_median

    match settings.rule:
        case "median":
            return CoordinateRule(weighted_median)
        case "trimmed-mean":
            return CoordinateRule(TrimmedMean(settings.trim))
        case "geometric-median":
            own = RFASettings(steps=STEPS, tolerance=0)
            return GeometricRule(GeometricMedian(own.steps, own.min_distance, own.tolerance))
    return None
