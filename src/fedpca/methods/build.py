"""Every method as a composition of parts, by name; `plus` and `with_drop` make new ones of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

from fedpca.core import Diagnose, Method, Recipe, ReportPart, Select, Stage
from fedpca.errors import UserError
from fedpca.methods.combine import plus
from fedpca.parts.client.augment import AUGMENTATIONS, Mixup, unblended, unchanged
from fedpca.parts.client.contribution import accuracy_without_own, keep_state
from fedpca.parts.client.distance import class_losses
from fedpca.parts.client.gap import Gap, KeepOwnLevel
from fedpca.parts.client.loss import Distilled, LogitAdjusted, StayNear, cross_entropy
from fedpca.parts.client.relabel import CorrectConfident, CorrectWorst, Scatter, unless_resting
from fedpca.parts.client.report import Joined, PerformanceAndCapacity, Sharpness, mean_loss
from fedpca.parts.client.select import ConfidentOfTheMislabeled, NothingOfTheMislabeled, everything
from fedpca.parts.client.step import GapGuided
from fedpca.parts.client.train import Descent, LocalTraining
from fedpca.parts.server.aggregate import WeightedMean, WithoutTheMislabeled
from fedpca.parts.server.cohort import Sampled, everyone
from fedpca.parts.server.contribution import ByContribution
from fedpca.parts.server.diagnose import InTurn, NameGroups, remember
from fedpca.parts.server.distance import HighClassLosses, by_distance
from fedpca.parts.server.gap import RaiseByGap, by_share
from fedpca.parts.server.identify import Identify, ThreeGroups, WrongShares
from fedpca.parts.server.relabel import FindScattered, RestTheNoisy
from fedpca.parts.server.robust import GeometricMedian, coordinate_median
from fedpca.parts.server.screened import DynamicStep, WithoutLongest
from fedpca.parts.server.weigh import ByCapacity, ByLoss, ByReliabilityAndCapacity, BySharpness, Weigh, by_size
from fedpca.settings.base import NoSettings, rounded
from fedpca.settings.catalogue import (
    DropSettings,
    FedCESettings,
    FedCorrSettings,
    FedGASettings,
    FedISMSettings,
    FedNoRoSettings,
    FedPCASettings,
    HighConfidenceSettings,
    HNobsSettings,
    MixSettings,
    QFedAvgSettings,
    QFFLSettings,
    RFASettings,
    SharpnessSettings,
    WithoutFairnessSettings,
)
from fedpca.settings.experiment import Experiment
from fedpca.settings.names import outside, parse


def compose(name: str, experiment: Experiment) -> Method:
    """The method of this name, `A+B` and `X+d` included, under the experiment's settings."""
    simple, drops = parse(name)
    methods = [_alone(part, experiment, combined=len(simple) > 1) for part in simple]
    method = methods[0]
    if len(methods) > 1:
        settings = experiment.settings_of("+".join(simple))
        assert isinstance(settings, MixSettings)
        method = plus(methods[0], methods[1], base(experiment), settings.share)
    if drops:
        settings = experiment.settings_of(name)
        assert isinstance(settings, DropSettings)
        method = with_drop(method, experiment, settings)
    return replace(method, name=name)


def _alone(name: str, experiment: Experiment, combined: bool) -> Method:
    """One method by name; its part in a combination may have other defaults."""
    settings = experiment.settings_of(name)
    if combined and isinstance(settings, FedNoRoSettings) and settings.logit_adjustment is None:
        settings = settings.model_copy(update={"logit_adjustment": experiment.training.logit_adjustment})
    if name in METHODS:
        return METHODS[name](experiment, settings)
    function = outside(name)
    method = function(experiment) if len(signature(function).parameters) == 1 else function(experiment, settings)
    if not isinstance(method, Method):
        raise UserError(f"method {name!r} must return a fedpca.Method, came {type(method).__name__}")
    return replace(method, name=name)


def base(experiment: Experiment) -> Recipe:
    """The recipe that methods change: train on everything, average by size."""
    return Recipe(
        report=None,
        diagnose=remember,
        select=everything,
        train=training(experiment),
        aggregate=WeightedMean(by_size),
        cohort=everyone if experiment.participation == 1 else Sampled(experiment.participation, experiment.seeds[0]),
    )


def training(experiment: Experiment) -> LocalTraining:
    """Local training as the experiment's settings say."""
    settings = experiment.training
    return LocalTraining(
        Descent(settings.optimizer, settings.lr, settings.momentum, settings.weight_decay),
        batch=settings.batch,
        epochs=settings.epochs,
        augment=AUGMENTATIONS[settings.augment],
        loss=LogitAdjusted() if settings.logit_adjustment else cross_entropy,
    )


def sharp_training(experiment: Experiment, settings: SharpnessSettings) -> LocalTraining:
    """Local training with GSAM's steps."""
    return replace(training(experiment), step=GapGuided(settings.radius, settings.alpha, settings.growth))


def single(name: str, recipe: Recipe) -> Method:
    """A method of one stage."""
    return Method(name, (Stage(recipe),))


def fedavg(experiment: Experiment, settings: NoSettings = NoSettings()) -> Method:  # noqa: B008 (frozen)
    """McMahan et al. 2017: clients train on all they have, the server averages by size."""
    return single("fedavg", base(experiment))


def qfedavg(experiment: Experiment, settings: QFedAvgSettings) -> Method:
    """Li et al. 2020 as the FedPCA paper simplifies it: FedAvg with weights that grow with the client's loss."""
    weigh = ByLoss(settings.q, settings.by_size)
    return single("qfedavg", replace(base(experiment), report=mean_loss, aggregate=WeightedMean(weigh)))


def qffl(experiment: Experiment, settings: QFFLSettings) -> Method:
    """Li et al. 2020: the fair objective's gradient over an estimate of its Lipschitz constant."""
    rule = DynamicStep(settings.q, experiment.training.lr)
    return single("qffl", replace(base(experiment), report=mean_loss, aggregate=rule))


def fedce(experiment: Experiment, settings: FedCESettings) -> Method:
    """Jiang et al. 2023: weights by direction and by how the model without the client does on its data."""
    recipe = replace(
        base(experiment),
        report=accuracy_without_own,
        train=replace(training(experiment), after=keep_state),
        aggregate=ByContribution(settings.mode, settings.averaged),
    )
    return single("fedce", recipe)


def fedga(experiment: Experiment, settings: FedGASettings) -> Method:
    """Zhang et al. 2023: weights follow the gap between each client's own model and the global one."""
    recipe = replace(
        base(experiment),
        report=Gap(settings.measure),
        diagnose=RaiseByGap(settings.step, settings.centred),
        train=replace(training(experiment), after=KeepOwnLevel(settings.measure)),
        aggregate=WeightedMean(by_share),
    )
    return single("fedga", recipe)


def fedism(experiment: Experiment, settings: FedISMSettings) -> Method:
    """Wu et al. 2024: sharpness-aware training, and weights that even out sharpness; FedISM+ lets the radius grow."""
    recipe = replace(
        base(experiment),
        report=Sharpness(settings.sharpness.radius, settings.sharpness.growth),
        train=sharp_training(experiment, settings.sharpness),
        aggregate=WeightedMean(BySharpness(settings.q), settings.smoothing),
    )
    return single("fedism", recipe)


def median(experiment: Experiment, settings: NoSettings) -> Method:
    """Yin et al. 2018: the coordinate-wise median in place of the mean."""
    return single("median", replace(base(experiment), aggregate=coordinate_median))


def rfa(experiment: Experiment, settings: RFASettings) -> Method:
    """Pillutla et al. 2022: the geometric median in place of the mean."""
    return single("rfa", replace(base(experiment), aggregate=GeometricMedian(**settings.model_dump())))


def fedcorr(experiment: Experiment, settings: FedCorrSettings) -> Method:
    """Xu et al. 2022: find noisy clients and correct labels; train on clean clients; train on everybody.

    What follows a round's aggregation there opens the next round here: clients correct labels as they are asked to
    report. So the second and third stage each begin with one round that asks.
    """
    first, second = settings.stages or _halves(experiment.rounds)
    blend = Mixup(settings.mixup) if settings.mixup else unblended
    plain = replace(training(experiment), blend=blend)
    held = replace(plain, loss=StayNear(settings.proximal, plain.loss), after=Scatter(settings.neighbours))
    correct = CorrectWorst(settings.corrected, settings.confidence)
    finding = replace(base(experiment), report=correct, diagnose=FindScattered(), train=held)
    choosing = replace(
        finding,
        diagnose=InTurn((FindScattered(), RestTheNoisy(settings.clean))),
        select=unless_resting,
        train=plain,
    )
    closing = replace(base(experiment), report=CorrectConfident(settings.confidence), train=plain)
    stages = (
        Stage(finding, first),
        Stage(choosing, 1),
        Stage(replace(choosing, report=None), second - 1),
        Stage(closing, 1),
        Stage(replace(closing, report=None)),
    )
    return Method("fedcorr", stages)


def _halves(rounds: int) -> tuple[int, int]:
    """Ten rounds, but at most a quarter of all, and the rest of the first half: the published 10 + 240 of 500."""
    first = min(10, max(1, rounds // 4))
    return first, max(1, rounds // 2 - first)


def fednoro(experiment: Experiment, settings: FedNoRoSettings) -> Method:
    """Wu et al. 2023: name the noisy clients once, then distil on them and weigh them by distance."""
    adjusted = settings.logit_adjustment is not False
    loss = LogitAdjusted() if adjusted else cross_entropy
    plain = replace(base(experiment), train=replace(training(experiment), loss=loss))
    end = settings.begin + rounded(0.4 * experiment.rounds) if settings.end == "proportional" else settings.end
    distilled = Distilled(
        settings.distillation, settings.temperature, settings.begin, max(end, settings.begin + 1), adjusted, loss
    )
    rest = replace(plain, train=replace(training(experiment), loss=distilled), aggregate=by_distance)
    naming = replace(rest, report=class_losses, diagnose=HighClassLosses(settings.fits))
    return Method("fednoro", (Stage(plain, settings.warmup), Stage(naming, 1), Stage(rest)))


def hnobs(experiment: Experiment, settings: HNobsSettings) -> Method:
    """Norm-based screening, then q-FedAvg; the experiment tells it how many clients are mislabeled, not which."""
    clients = experiment.data.clients or len(experiment.data.sizes or ())
    if settings.screened is None and not clients:
        raise UserError("hnobs: the settings do not say how many clients there are; set method.hnobs.screened")
    taking_part = max(1, rounded(experiment.participation * clients))
    count = rounded(experiment.noise.clients * taking_part) if settings.screened is None else settings.screened
    if clients and count >= taking_part:
        raise UserError(f"hnobs: it would screen out {count} of the {taking_part} clients of a round: all of them")
    rule = WithoutLongest(count, WeightedMean(ByLoss(settings.q)))
    return single("hnobs", replace(base(experiment), report=mean_loss, aggregate=rule))


def fedpca(experiment: Experiment, settings: WithoutFairnessSettings, select: Select, weigh: Weigh) -> Method:
    """Wu et al. 2025: FedAvg to warm up, then performance-capacity analysis in every round."""
    sharp = sharp_training(experiment, settings.sharpness)
    warm = replace(base(experiment), train=sharp) if settings.sharpness_in_warmup else base(experiment)
    dropping = isinstance(select, NothingOfTheMislabeled) and settings.exclude_after_smoothing
    mean = WeightedMean(weigh, settings.weight_smoothing)
    report, diagnose = identifying(experiment, settings)
    recipe = replace(
        base(experiment),
        report=report,
        diagnose=diagnose,
        select=select,
        train=sharp,
        aggregate=WithoutTheMislabeled(mean) if dropping else mean,
    )
    return Method("fedpca", (Stage(warm, settings.warmup), Stage(recipe)))


def fedpca_d(experiment: Experiment, settings: FedPCASettings) -> Method:
    """FedPCA (D): the mislabeled are dropped."""
    weigh = ByReliabilityAndCapacity(settings.q, settings.dispersion_depth)
    return fedpca(experiment, settings, NothingOfTheMislabeled(), weigh)


def fedpca_hs(experiment: Experiment, settings: HighConfidenceSettings) -> Method:
    """FedPCA (HS): the mislabeled train on their confident predictions."""
    weigh = ByReliabilityAndCapacity(settings.q, settings.dispersion_depth)
    return fedpca(experiment, settings, ConfidentOfTheMislabeled(settings.least_samples), weigh)


def fedpca_without_fairness(experiment: Experiment, settings: WithoutFairnessSettings) -> Method:
    """FedPCA (D) with q = 0."""
    return fedpca(experiment, settings, NothingOfTheMislabeled(), ByReliabilityAndCapacity(q=0.0))


def fedpca_without_robustness(experiment: Experiment, settings: FedPCASettings) -> Method:
    """FedPCA with weights by capacity alone, and everybody's labels as they are."""
    return fedpca(experiment, settings, everything, ByCapacity(settings.q, settings.dispersion_depth))


def identifying(experiment: Experiment, settings: DropSettings) -> tuple[ReportPart, Diagnose]:
    """What clients report and how the server names groups from it."""
    rules: dict[str, Identify] = {
        "mixture": ThreeGroups(**settings.mixture.model_dump()),
        "auto": WrongShares(settings.auto.share, settings.auto.certainty),
    }
    confident = settings if isinstance(settings, HighConfidenceSettings) else None
    report = PerformanceAndCapacity(
        settings.dispersion_per_sample,
        settings.dispersion_denominator,
        confident.confidence if confident else None,
        informativeness=settings.identify == "auto",
        augment=training(experiment).augment if settings.report_augmented else unchanged,
    )
    threshold = settings.identity_threshold if settings.identify == "mixture" else settings.auto.share
    naming = NameGroups(rules[settings.identify], settings.identity_smoothing, threshold)
    return report, replace(naming, least_confidence=confident.least_confidence) if confident else naming


def with_drop(method: Method, experiment: Experiment, settings: DropSettings) -> Method:
    """X + (D): FedAvg to warm up, then the method, each stage of it, among those who are not found mislabeled."""
    stages = (replace(stage, recipe=_dropping(stage.recipe, experiment, settings)) for stage in method.stages)
    return Method(f"{method.name}+d", (Stage(base(experiment), settings.warmup), *stages))


def _dropping(recipe: Recipe, experiment: Experiment, settings: DropSettings) -> Recipe:
    """The recipe after identification: both report, both diagnose, the mislabeled neither train nor count."""
    report, diagnose = identifying(experiment, settings)
    return replace(
        recipe,
        report=Joined((report, recipe.report)) if recipe.report else report,
        diagnose=InTurn((diagnose, recipe.diagnose)),
        select=NothingOfTheMislabeled(recipe.select),
        aggregate=WithoutTheMislabeled(recipe.aggregate),
    )


METHODS: dict[str, Callable[[Experiment, Any], Method]] = {  # Any: each takes the settings that the catalogue names
    "fedavg": fedavg,
    "qfedavg": qfedavg,
    "qffl": qffl,
    "fedce": fedce,
    "fedga": fedga,
    "fedism": fedism,
    "fedism+": fedism,
    "median": median,
    "rfa": rfa,
    "fedcorr": fedcorr,
    "fednoro": fednoro,
    "hnobs": hnobs,
    "fedpca-d": fedpca_d,
    "fedpca-hs": fedpca_hs,
    "fedpca-d-auto": fedpca_d,
    "fedpca-hs-auto": fedpca_hs,
    "fedpca-wo-fairness": fedpca_without_fairness,
    "fedpca-wo-robustness": fedpca_without_robustness,
}
