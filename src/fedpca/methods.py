"""Every method as a composition of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fedpca.catalogue import (
    DropSettings,
    FedISMSettings,
    FedPCASettings,
    HighConfidenceSettings,
    HNobsSettings,
    QFedAvgSettings,
    QFFLSettings,
    RFASettings,
    Settings,
    WithoutFairnessSettings,
)
from fedpca.core import Diagnose, Method, Recipe, ReportPart, Select, Stage
from fedpca.faults import UserError
from fedpca.parts.aggregate import WeightedMean
from fedpca.parts.augment import CropFlip, unchanged
from fedpca.parts.cohort import Sampled, everyone
from fedpca.parts.diagnose import InTurn, NameGroups, remember
from fedpca.parts.identify import Identify, ThreeGroups, WrongShares
from fedpca.parts.loss import LogitAdjusted, cross_entropy
from fedpca.parts.report import Joined, PerformanceAndCapacity, Sharpness, mean_loss
from fedpca.parts.robust import GeometricMedian, coordinate_median
from fedpca.parts.screened import DynamicStep, WithoutLongest
from fedpca.parts.select import ConfidentOfTheMislabeled, NothingOfTheMislabeled, everything
from fedpca.parts.step import GapGuided
from fedpca.parts.train import Descent, LocalTraining
from fedpca.parts.weigh import ByCapacity, ByLoss, ByReliabilityAndCapacity, BySharpness, Weigh, by_size
from fedpca.scenario import Experiment

Chosen = TypeVar("Chosen", bound=Settings)


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
        augment=CropFlip() if settings.augment == "crop-flip" else unchanged,
        loss=LogitAdjusted() if settings.logit_adjustment else cross_entropy,
    )


def single(name: str, recipe: Recipe) -> Method:
    """A method of one stage."""
    return Method(name, (Stage(recipe),))


def fedavg(experiment: Experiment) -> Method:
    """McMahan et al. 2017: clients train on all they have, the server averages by size."""
    return single("fedavg", base(experiment))


def qfedavg(experiment: Experiment) -> Method:
    """Li et al. 2020 as the FedPCA paper simplifies it: FedAvg with weights that grow with the client's loss."""
    settings = _settings(experiment, "qfedavg", QFedAvgSettings)
    weigh = ByLoss(settings.q, settings.by_size)
    return single("qfedavg", replace(base(experiment), report=mean_loss, aggregate=WeightedMean(weigh)))


def qffl(experiment: Experiment) -> Method:
    """Li et al. 2020: the fair objective's gradient over an estimate of its Lipschitz constant."""
    rule = DynamicStep(_settings(experiment, "qffl", QFFLSettings).q, experiment.training.lr)
    return single("qffl", replace(base(experiment), report=mean_loss, aggregate=rule))


def fedism(experiment: Experiment) -> Method:
    """Wu et al. 2024: sharpness-aware training, and weights that even out sharpness."""
    settings = _settings(experiment, "fedism", FedISMSettings)
    recipe = replace(
        base(experiment),
        report=Sharpness(settings.sharpness.radius),
        train=replace(training(experiment), step=GapGuided(settings.sharpness.radius, settings.sharpness.alpha)),
        aggregate=WeightedMean(BySharpness(settings.q), settings.smoothing),
    )
    return single("fedism", recipe)


def median(experiment: Experiment) -> Method:
    """Yin et al. 2018: the coordinate-wise median in place of the mean."""
    return single("median", replace(base(experiment), aggregate=coordinate_median))


def rfa(experiment: Experiment) -> Method:
    """Pillutla et al. 2022: the geometric median in place of the mean."""
    rule = GeometricMedian(**_settings(experiment, "rfa", RFASettings).model_dump())
    return single("rfa", replace(base(experiment), aggregate=rule))


def hnobs(experiment: Experiment) -> Method:
    """Norm-based screening, then q-FedAvg; the experiment tells it how many clients are mislabeled, not which."""
    settings = _settings(experiment, "hnobs", HNobsSettings)
    clients = experiment.data.clients or len(experiment.data.sizes or ())
    if settings.screened is None and not clients:
        raise UserError("hnobs: the settings do not say how many clients there are; set method.hnobs.screened")
    count = int(experiment.noise.clients * clients + 0.5 + 1e-9) if settings.screened is None else settings.screened
    rule = WithoutLongest(count, WeightedMean(ByLoss(settings.q)))
    return single("hnobs", replace(base(experiment), report=mean_loss, aggregate=rule))


def fedpca(
    name: str, experiment: Experiment, settings: WithoutFairnessSettings, select: Select, weigh: Weigh
) -> Method:
    """Wu et al. 2025: FedAvg to warm up, then performance-capacity analysis in every round."""
    sharp = replace(training(experiment), step=GapGuided(settings.sharpness.radius, settings.sharpness.alpha))
    warm = replace(base(experiment), train=sharp) if settings.sharpness_in_warmup else base(experiment)
    dropping = isinstance(select, NothingOfTheMislabeled) and settings.exclude_after_smoothing
    report, diagnose = identifying(experiment, settings)
    recipe = replace(
        base(experiment),
        report=report,
        diagnose=diagnose,
        select=select,
        train=sharp,
        aggregate=WeightedMean(weigh, settings.weight_smoothing, exclude=dropping),
    )
    return Method(name, (Stage(warm, settings.warmup), Stage(recipe)))


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
    """The recipe with identification before it: both report, both diagnose, the mislabeled neither train nor count."""
    report, diagnose = identifying(experiment, settings)
    aggregate = recipe.aggregate
    return replace(
        recipe,
        report=Joined((recipe.report, report)) if recipe.report else report,
        diagnose=InTurn((recipe.diagnose, diagnose)),
        select=NothingOfTheMislabeled(recipe.select),
        aggregate=replace(aggregate, exclude=True) if isinstance(aggregate, WeightedMean) else aggregate,
    )


def _settings(experiment: Experiment, name: str, kind: type[Chosen]) -> Chosen:
    settings = experiment.settings_of(name)
    assert isinstance(settings, kind)
    return settings


def _drop(name: str) -> Callable[[Experiment], Method]:
    def compose(experiment: Experiment) -> Method:
        settings = _settings(experiment, name, FedPCASettings)
        weigh = ByReliabilityAndCapacity(settings.q, settings.dispersion_depth)
        return fedpca(name, experiment, settings, NothingOfTheMislabeled(), weigh)

    return compose


def _high_confidence(name: str) -> Callable[[Experiment], Method]:
    def compose(experiment: Experiment) -> Method:
        settings = _settings(experiment, name, HighConfidenceSettings)
        weigh = ByReliabilityAndCapacity(settings.q, settings.dispersion_depth)
        return fedpca(name, experiment, settings, ConfidentOfTheMislabeled(settings.least_samples), weigh)

    return compose


def _without_fairness(experiment: Experiment) -> Method:
    settings = _settings(experiment, "fedpca-wo-fairness", WithoutFairnessSettings)
    weigh = ByReliabilityAndCapacity(q=0.0)
    return fedpca("fedpca-wo-fairness", experiment, settings, NothingOfTheMislabeled(), weigh)


def _without_robustness(experiment: Experiment) -> Method:
    settings = _settings(experiment, "fedpca-wo-robustness", FedPCASettings)
    weigh = ByCapacity(settings.q, settings.dispersion_depth)
    return fedpca("fedpca-wo-robustness", experiment, settings, everything, weigh)


def _fedavg_without_the_mislabeled(experiment: Experiment) -> Method:
    return with_drop(fedavg(experiment), experiment, _settings(experiment, "fedavg+d", DropSettings))


METHODS: dict[str, Callable[[Experiment], Method]] = {
    "fedavg": fedavg,
    "qfedavg": qfedavg,
    "qffl": qffl,
    "fedism": fedism,
    "median": median,
    "rfa": rfa,
    "hnobs": hnobs,
    "fedpca-d": _drop("fedpca-d"),
    "fedpca-hs": _high_confidence("fedpca-hs"),
    "fedpca-d-auto": _drop("fedpca-d-auto"),
    "fedpca-hs-auto": _high_confidence("fedpca-hs-auto"),
    "fedpca-wo-fairness": _without_fairness,
    "fedpca-wo-robustness": _without_robustness,
    "fedavg+d": _fedavg_without_the_mislabeled,
}
