"""FedNoRo: noisy clients named once, then distilled."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from fedpca.core import Method, Stage
from fedpca.methods.base import base, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Count, Positive, Settings, Share, rounded


class FedNoRoSettings(Settings):
    """What `[method.fednoro]` takes."""

    warmup: Count = 10  # rounds before the noisy clients are named, once
    fits: Count = 9  # of the mixture; the most frequent answer counts
    distillation: Share = 0.8  # share of the global model's opinion in the noisy clients' loss, at its most
    temperature: Positive = 0.8  # of that opinion; below 1 it is sharpened
    begin: Annotated[int, Field(ge=0)] = 10  # round, counted from 0, from which on the share rises
    end: Count | Literal["proportional"] = 49  # round at which it is reached; proportional: begin + 0.4 rounds
    logit_adjustment: bool = True  # False: as training.logit_adjustment says


@method(
    "fednoro",
    settings=FedNoRoSettings,
    combined={"logit_adjustment": False},
    family="robust",
    year=2023,
    judges=True,
)
def fednoro(plan: Plan, settings: FedNoRoSettings) -> Method:
    """Finds noisy clients by class losses, distils on them, weighs them by distance (Wu et al. 2023)."""
    from fedpca.parts.client.distance import class_losses
    from fedpca.parts.client.loss import Distillation, LogitAdjustment, cross_entropy
    from fedpca.parts.server.distance import HighClassLosses, by_distance

    adjusted = settings.logit_adjustment or plan.training.logit_adjustment
    loss = LogitAdjustment(tau=1.0) if adjusted else cross_entropy
    end = settings.begin + rounded(0.4 * plan.rounds) if settings.end == "proportional" else settings.end
    distilled = Distillation(
        settings.distillation, settings.temperature, settings.begin, max(end, settings.begin + 1), adjusted, loss
    )
    plain = replace(base(plan), train=replace(training(plan), loss=loss))
    rest = replace(plain, train=replace(training(plan), loss=distilled), aggregate=by_distance)
    naming = replace(rest, report=class_losses, diagnose=HighClassLosses(settings.fits))
    return Method("", (Stage(plain, settings.warmup), Stage(naming, 1), Stage(rest)))
