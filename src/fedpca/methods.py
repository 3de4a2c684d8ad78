"""Every method as a composition of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedpca.catalogue import FedPCASettings
from fedpca.core import Diagnose, Method, Recipe, ReportPart, Select, Stage
from fedpca.parts.aggregate import WeightedMean
from fedpca.parts.augment import CropFlip, unchanged
from fedpca.parts.cohort import Sampled, everyone
from fedpca.parts.diagnose import InTurn, NameGroups, remember
from fedpca.parts.identify import Identify, ThreeGroups, WrongShares
from fedpca.parts.loss import LogitAdjusted, cross_entropy
from fedpca.parts.report import Joined, PerformanceAndCapacity
from fedpca.parts.select import ConfidentOfTheMislabeled, NothingOfTheMislabeled, everything
from fedpca.parts.step import GapGuided
from fedpca.parts.train import Descent, LocalTraining
from fedpca.parts.weigh import ByCapacity, ByReliabilityAndCapacity, Weigh, by_size
from fedpca.scenario import Experiment


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


def fedpca(name: str, experiment: Experiment, settings: FedPCASettings, select: Select, weigh: Weigh) -> Method:
    """Wu et al. 2025: FedAvg to warm up, then performance-capacity analysis in every round."""
    sharp = replace(training(experiment), step=GapGuided(settings.sharpness.radius, settings.sharpness.alpha))
    warm = replace(base(experiment), train=sharp) if settings.sharpness_in_warmup else base(experiment)
    dropping = isinstance(select, NothingOfTheMislabeled) and settings.exclude_after_smoothing
    report, diagnose = identifying(experiment, settings, confidence=isinstance(select, ConfidentOfTheMislabeled))
    recipe = replace(
        base(experiment),
        report=report,
        diagnose=diagnose,
        select=select,
        train=sharp,
        aggregate=WeightedMean(weigh, settings.weight_smoothing, exclude=dropping),
    )
    return Method(name, (Stage(warm, settings.warmup), Stage(recipe)))


def identifying(
    experiment: Experiment, settings: FedPCASettings, confidence: bool = False
) -> tuple[ReportPart, Diagnose]:
    """What clients report and how the server names groups from it."""
    rules: dict[str, Identify] = {
        "mixture": ThreeGroups(**settings.mixture.model_dump()),
        "auto": WrongShares(settings.auto.share, settings.auto.certainty),
    }
    report = PerformanceAndCapacity(
        settings.dispersion_per_sample,
        settings.dispersion_denominator,
        settings.confidence if confidence else None,
        informativeness=settings.identify == "auto",
        augment=training(experiment).augment if settings.report_augmented else unchanged,
    )
    threshold = settings.identity_threshold if settings.identify == "mixture" else settings.auto.share
    diagnose = NameGroups(rules[settings.identify], settings.identity_smoothing, threshold, settings.least_confidence)
    return report, diagnose


def with_drop(method: Method, experiment: Experiment, settings: FedPCASettings) -> Method:
    """X + (D): FedAvg to warm up, then the method, each stage of it, among those who are not found mislabeled."""
    stages = (replace(stage, recipe=_dropping(stage.recipe, experiment, settings)) for stage in method.stages)
    return Method(f"{method.name}+d", (Stage(base(experiment), settings.warmup), *stages))


def _dropping(recipe: Recipe, experiment: Experiment, settings: FedPCASettings) -> Recipe:
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


def _fedpca(name: str, experiment: Experiment, high_confidence: bool = False, q: float | None = None) -> Method:
    settings = experiment.settings_of(name)
    assert isinstance(settings, FedPCASettings)
    select: Select = ConfidentOfTheMislabeled(settings.least_samples) if high_confidence else NothingOfTheMislabeled()
    weigh = ByReliabilityAndCapacity(settings.q if q is None else q, settings.dispersion_depth)
    return fedpca(name, experiment, settings, select, weigh)


def _without_robustness(experiment: Experiment) -> Method:
    settings = experiment.settings_of("fedpca-wo-robustness")
    assert isinstance(settings, FedPCASettings)
    weigh = ByCapacity(settings.q, settings.dispersion_depth)
    return fedpca("fedpca-wo-robustness", experiment, settings, everything, weigh)


def _fedavg_without_mislabeled(experiment: Experiment) -> Method:
    settings = experiment.settings_of("fedavg+d")
    assert isinstance(settings, FedPCASettings)
    return with_drop(fedavg(experiment), experiment, settings)


METHODS: dict[str, Callable[[Experiment], Method]] = {
    "fedavg": fedavg,
    "fedpca-d": lambda experiment: _fedpca("fedpca-d", experiment),
    "fedpca-hs": lambda experiment: _fedpca("fedpca-hs", experiment, high_confidence=True),
    "fedpca-d-auto": lambda experiment: _fedpca("fedpca-d-auto", experiment),
    "fedpca-hs-auto": lambda experiment: _fedpca("fedpca-hs-auto", experiment, high_confidence=True),
    "fedpca-wo-fairness": lambda experiment: _fedpca("fedpca-wo-fairness", experiment, q=0.0),
    "fedpca-wo-robustness": _without_robustness,
    "fedavg+d": _fedavg_without_mislabeled,
}
