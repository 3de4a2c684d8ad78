"""FedCE: fairness by contribution."""

from dataclasses import replace
from typing import ClassVar, Literal

from fedpca.core import Method
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Settings


class FedCESettings(Settings):
    """What `[method.fedce]` takes."""

    RENAMED: ClassVar = {"averaged": "average_rounds"}

    mode: Literal["times", "plus"] = "times"  # how the two estimates of a contribution are joined
    average_rounds: bool = True  # False: each round's own estimate, at least 0.001, as the original


@method("fedce", settings=FedCESettings, family="fair", year=2023)
def fedce(plan: Plan, settings: FedCESettings) -> Method:
    """Weights grow with what a client adds: direction, and where the others fail (Jiang et al. 2023)."""
    from fedpca.parts.client.contribution import accuracy_without_own, keep_state
    from fedpca.parts.server.contribution import ByContribution

    recipe = replace(
        base(plan),
        report=accuracy_without_own,
        train=replace(training(plan), after=keep_state),
        aggregate=ByContribution(settings.mode, settings.average_rounds),
    )
    return one_stage(recipe)
