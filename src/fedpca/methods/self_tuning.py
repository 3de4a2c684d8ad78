"""FedPCA that finds its own settings: the method to switch on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from fedpca.core import Aggregate, Explain, Method, Recipe, Stage
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.methods.identify import HighConfidenceSettings, IdentifySettings, OpenShare, identification
from fedpca.settings.base import NonNegative, Positive, Settings

if TYPE_CHECKING:
    from fedpca.parts.client.loss import AdjustmentWhereSkewed, CrossEntropy, LogitAdjustment
    from fedpca.parts.client.step import Step

Lift = Annotated[float, Field(ge=1)]
SKEW = 3.0  # deviations beyond chance, from which on a client's classes are skewed


class HeldOutSettings(Settings):
    """On what clients try models: rows that they never train on."""

    share: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    min_rows: Annotated[int, Field(ge=1)] = 1000  # of a client, below which it holds nothing out
    max_tried: Annotated[int, Field(ge=1)] = 100  # rows that a client tries a model on


class SharpnessChoice(Settings):
    """When training is sharpness-aware (GSAM)."""

    use: Literal["auto", "always", "never"] = "auto"
    radius: NonNegative = 0.05
    alpha: NonNegative = 0.1
    min_pace: NonNegative = 0.005  # by which the median client's loss falls in a round; below it `auto` uses GSAM
    smoothing: OpenShare = 0.2  # of that pace: share of the new one


class SelfTuningSettings(Settings):
    """What `[method.fedpca]` takes: nothing is needed, and each choice can be made by hand."""

    warmup: Annotated[int, Field(ge=0)] = 0  # rounds of FedAvg first; 0: clients are judged as soon as labels can be
    lift: Lift | Literal["auto"] = "auto"  # of rare clients' weight per image over the others'
    max_lift: Lift = 5.0
    lift_step: Annotated[float, Field(gt=1)] = 1.2  # by which the lift changes in a round
    lift_trial: Annotated[float, Field(gt=1)] = 1.5  # by which clients try it larger
    rare_counts: Positive = 2.0  # times that what rare clients gain counts against what the others lose
    held_out: HeldOutSettings = HeldOutSettings()
    mislabeled: Literal["auto", "drop", "correct"] = "auto"
    max_wrong: OpenShare = 0.8  # estimated share of wrong labels, from which on `auto` drops a client
    high_confidence: HighConfidenceSettings = HighConfidenceSettings()
    identify: IdentifySettings = IdentifySettings(rule="auto")
    sharpness: SharpnessChoice = SharpnessChoice()
    logit_adjustment: bool | Literal["auto"] = "auto"  # auto: where a client's classes are skewed
    weight_smoothing: OpenShare = 0.5  # share of the new weights


@method("fedpca", settings=SelfTuningSettings, family="ours", judges=True, year=2026, page="self-tuning")
def fedpca(plan: Plan, settings: SelfTuningSettings) -> Method:
    """FedPCA with nothing to tune: it finds lift, treatment of wrong labels, sharpness and warm-up by itself."""
    from fedpca.parts.client.probe import HeldOut, ReportSkew, TryMoreRare
    from fedpca.parts.client.report import JoinReports
    from fedpca.parts.client.select import ConfidentOfTheMislabeled, CorrectOrDrop, WithoutHeldOut
    from fedpca.parts.server.diagnose import InTurn
    from fedpca.parts.server.lift import FollowGains

    report, diagnose = identification(plan, settings.identify, settings.high_confidence)
    limit = {"auto": settings.max_wrong, "drop": 0.0, "correct": 1.0 + 1e-9}[settings.mislabeled]
    select = CorrectOrDrop(ConfidentOfTheMislabeled(settings.high_confidence.min_samples), limit)
    loss = _loss(plan, settings)
    train = replace(training(plan), loss=loss, step=_step(settings))
    asks = (report, ReportSkew(SKEW)) if _adjusts(plan, settings) else (report,)
    recipe = replace(
        base(plan),
        report=JoinReports(asks),
        diagnose=diagnose,
        select=select,
        train=train,
        aggregate=_rule(settings),
        explain=_explain(plan, settings, limit),
    )
    if settings.lift == "auto":
        held_out = HeldOut(settings.held_out.share, settings.held_out.min_rows)
        recipe = replace(
            recipe,
            report=JoinReports((*asks, TryMoreRare(held_out, settings.held_out.max_tried, loss))),
            diagnose=InTurn((diagnose, FollowGains(settings.lift_step, settings.max_lift, settings.rare_counts))),
            select=WithoutHeldOut(select, held_out),
        )
    return _after_warmup(plan, settings, recipe)


def _after_warmup(plan: Plan, settings: SelfTuningSettings, recipe: Recipe) -> Method:
    """FedAvg for the rounds that are asked for; otherwise clients report from the first round on."""
    if not settings.warmup:
        return one_stage(recipe)
    warm = replace(base(plan), select=recipe.select, train=recipe.train)
    return Method("", (Stage(warm, settings.warmup), Stage(recipe)))


def _loss(plan: Plan, settings: SelfTuningSettings) -> AdjustmentWhereSkewed | CrossEntropy | LogitAdjustment:
    from fedpca.parts.client.loss import AdjustmentWhereSkewed, LogitAdjustment, cross_entropy

    if plan.training.logit_adjustment or settings.logit_adjustment is True:
        return LogitAdjustment(tau=1.0)
    return AdjustmentWhereSkewed(tau=1.0, deviations=SKEW) if settings.logit_adjustment == "auto" else cross_entropy


def _step(settings: SelfTuningSettings) -> Step:
    from fedpca.parts.client.step import GSAM, SharpWhereShown, descend

    sharp = GSAM(settings.sharpness.radius, settings.sharpness.alpha, growth=0.0)
    steps: dict[str, Step] = {"auto": SharpWhereShown(sharp), "always": sharp, "never": descend}
    return steps[settings.sharpness.use]


def _rule(settings: SelfTuningSettings) -> Aggregate:
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.lift import ByLiftAndTrust, ShowMoreRare, ShowWhetherSettled

    fixed = None if settings.lift == "auto" else settings.lift
    rule: Aggregate = WeightedMean(ByLiftAndTrust(fixed), settings.weight_smoothing)
    if fixed is None:
        rule = ShowMoreRare(rule, settings.lift_trial)
    sharp = settings.sharpness
    return ShowWhetherSettled(rule, sharp.min_pace, sharp.smoothing) if sharp.use == "auto" else rule


def _explain(plan: Plan, settings: SelfTuningSettings, max_wrong: float) -> Explain:
    from fedpca.parts.server.choices import ExplainChoices

    sharp, lift = settings.sharpness, settings.lift
    pace = sharp.min_pace if sharp.use == "auto" else None
    fixed = None if lift == "auto" else lift
    return ExplainChoices(fixed, settings.max_lift, max_wrong, pace, _adjusts(plan, settings))


def _adjusts(plan: Plan, settings: SelfTuningSettings) -> bool:
    """Whether logit adjustment is left to each client's classes."""
    return settings.logit_adjustment == "auto" and not plan.training.logit_adjustment
