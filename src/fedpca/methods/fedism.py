"""FedISM and FedISM+: fairness by sharpness."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.methods.sharpness import SharpnessSettings, sharp_training
from fedpca.settings.base import NonNegative, Settings


class FedISMSettings(Settings):
    """What `[method.fedism]` and `[method."fedism+"]` take."""

    q: NonNegative = 2.0  # strength of fairness; that of the command in its README
    smoothing: Annotated[float, Field(gt=0, le=1)] = 0.5  # share of the new weights
    sharpness: SharpnessSettings = SharpnessSettings()


@method("fedism", settings=FedISMSettings, family="fair", year=2024)
def fedism(plan: Plan, settings: FedISMSettings) -> Method:
    """Weights grow with the sharpness of each client's loss, GSAM locally (Wu et al. 2024)."""
    from fedpca.parts.client.report import Sharpness
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.weigh import BySharpness

    recipe = replace(
        base(plan),
        report=Sharpness(settings.sharpness.radius, settings.sharpness.growth),
        train=sharp_training(plan, settings.sharpness),
        aggregate=WeightedMean(BySharpness(settings.q), settings.smoothing),
    )
    return one_stage(recipe)


FEDISM_PLUS = replace(
    fedism,
    name="fedism+",
    summary="FedISM with a radius that grows over the rounds (FedISM+)",
    preset={"sharpness": {"growth": 0.5}},
)
