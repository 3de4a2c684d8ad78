"""FedGA: fairness by generalisation gap."""

from dataclasses import replace
from typing import ClassVar, Literal

from fedpca.core import Method
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings


class FedGASettings(Settings):
    """What `[method.fedga]` takes."""

    RENAMED: ClassVar = {"centred": "center_gaps"}

    step: NonNegative = 0.05  # by which a weight moves at most, as a share of the mean weight; shrinks over the run
    center_gaps: bool = True  # gaps less their mean; False as the original
    measure: Literal["loss", "accuracy"] = "loss"  # what the gap is a gap of; the original takes accuracy


@method("fedga", settings=FedGASettings, family="fair", year=2023)
def fedga(plan: Plan, settings: FedGASettings) -> Method:
    """Weights move towards clients for whom the global model is worse than their own (Zhang et al. 2023)."""
    from fedpca.parts.client.gap import Gap, KeepOwnLevel
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.gap import RaiseByGap, by_share

    recipe = replace(
        base(plan),
        report=Gap(settings.measure),
        diagnose=RaiseByGap(settings.step, settings.center_gaps),
        train=replace(training(plan), after=KeepOwnLevel(settings.measure)),
        aggregate=WeightedMean(by_share, smoothing=1.0),
    )
    return one_stage(recipe)
