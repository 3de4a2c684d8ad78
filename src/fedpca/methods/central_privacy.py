"""Any method whose rule allows it, with differential privacy at the server: `[privacy.central]`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fedpca.core import Aggregate, Method, Recipe
from fedpca.errors import SettingsError
from fedpca.settings.privacy import PrivacySettings

if TYPE_CHECKING:
    from fedpca.parts.server.central import Draw

REMEDY = "choose a method whose rule is a mean, such as fedavg or fedpca-d-auto, or leave privacy.central out"


def with_central_noise(method: Method, settings: PrivacySettings, noise: float, draw: Draw) -> Method:
    """The method with noise on its mean; the very method without an epsilon. What promises nothing is refused."""
    if settings.central.clip is None:
        return method
    clip = settings.central.clip
    stages = tuple(
        replace(stage, recipe=_with_noise(method.name, stage.recipe, clip, noise, draw)) for stage in method.stages
    )
    return replace(method, stages=stages)


def require_promise(method: Method, settings: PrivacySettings) -> None:
    """Refuses what noise at the server could not protect.

    Weights must come from what the server may know: from nothing, or from reports that have noise themselves.
    """
    from fedpca.screening import claims_of

    if settings.central.epsilon is None:
        return
    if method.own_model or method.pools_data:
        raise SettingsError(f"privacy.central needs one global model, and {method.name} has none: {REMEDY}")
    for recipe in (stage.recipe for stage in method.stages):
        _innermost(method.name, recipe.aggregate, lambda rule: rule)
        claims = [claims_of(part) for part in (recipe.report, recipe.train)]
        if settings.reports.epsilon is None and any(own.open or own.bounds for own in claims):
            raise SettingsError(
                f"privacy.central needs weights that tell nothing of the data, and those of {method.name} come from "
                "what clients report without differential privacy: set privacy.reports.epsilon too, or choose a "
                "method without reports, such as fedavg"
            )


def _with_noise(name: str, recipe: Recipe, clip: float, noise: float, draw: Draw) -> Recipe:
    from fedpca.parts.abilities import ability
    from fedpca.parts.server.central import CentralNoise

    idle = ability(recipe.select, "idle")
    rule = _innermost(name, recipe.aggregate, lambda own: CentralNoise(own, clip, noise, draw, idle))
    return replace(recipe, aggregate=rule)


def _innermost(name: str, rule: Aggregate, change: Callable[[Aggregate], Aggregate]) -> Aggregate:
    """The rule with the mean changed that it is, or goes on from without another look at the updates."""
    from fedpca.parts.abilities import ability

    if ability(rule, "mean_by_verdicts"):
        return change(rule)
    if ability(rule, "only_goes_on"):
        changed: Aggregate = ability(rule, "with_inner")(lambda own: _innermost(name, own, change))
        return changed
    raise SettingsError(
        f"privacy.central needs a mean of which no client can change the others' weights, and {name} has "
        f"{type(rule).__name__}{_why(rule)}: {REMEDY}"
    )


def _why(rule: Aggregate) -> str:
    from fedpca.parts.abilities import ability

    return f" ({why})" if (why := ability(rule, "why_no_mean")) else ""
