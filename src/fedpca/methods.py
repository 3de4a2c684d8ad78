"""Every method as a composition of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedpca.catalogue import FedPCASettings
from fedpca.core import Method, Recipe, Select, Stage
from fedpca.parts.aggregate import WeightedMean
from fedpca.parts.augment import CropFlip, unchanged
from fedpca.parts.cohort import Sampled, everyone
from fedpca.parts.diagnose import NameGroups, remember
from fedpca.parts.identify import Identify, ThreeGroups, WrongShares
from fedpca.parts.loss import LogitAdjusted, cross_entropy
from fedpca.parts.report import PerformanceAndCapacity
from fedpca.parts.select import ConfidentOfTheMislabeled, everything, nothing_of_the_mislabeled
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
    dropping = select is nothing_of_the_mislabeled and settings.exclude_after_smoothing
    recipe = replace(
        identifying(base(experiment), settings, confidence=isinstance(select, ConfidentOfTheMislabeled)),
        select=select,
        train=sharp,
        aggregate=WeightedMean(weigh, settings.weight_smoothing, exclude=dropping),
    )
    return Method(name, (Stage(warm, settings.warmup), Stage(recipe)))


def identifying(recipe: Recipe, settings: FedPCASettings, confidence: bool = False) -> Recipe:
    """The recipe with clients reporting loss and dispersion, and the server naming groups."""
    mixture, auto = settings.mixture, settings.auto
    rules: dict[str, Identify] = {
        "mixture": ThreeGroups(**mixture.model_dump()),
        "auto": WrongShares(auto.share, auto.certainty),
    }
    return replace(
        recipe,
        report=PerformanceAndCapacity(
            settings.dispersion_per_sample,
            settings.dispersion_denominator,
            settings.confidence if confidence else None,
            informativeness=settings.identify == "auto",
        ),
        diagnose=NameGroups(
            rules[settings.identify],
            settings.identity_smoothing,
            settings.identity_threshold if settings.identify == "mixture" else auto.share,
            settings.least_confidence,
        ),
    )


def with_drop(method: Method, experiment: Experiment, settings: FedPCASettings) -> Method:
    """X + (D): FedAvg to warm up, then the method among those who are not found mislabeled, each stage of it."""
    stages = (replace(stage, recipe=_dropping(stage.recipe, settings)) for stage in method.stages)
    return Method(f"{method.name}+d", (Stage(base(experiment), settings.warmup), *stages))


def _dropping(recipe: Recipe, settings: FedPCASettings) -> Recipe:
    """The recipe with identification before it; it must select everything, or the drop would undo its selection."""
    if recipe.select is not everything or recipe.report is not None:
        raise ValueError("with_drop takes recipes that train on everything and ask for no report of their own")
    return replace(identifying(recipe, settings), select=nothing_of_the_mislabeled)


def _fedpca(name: str, experiment: Experiment, high_confidence: bool = False, q: float | None = None) -> Method:
    settings = experiment.settings_of(name)
    assert isinstance(settings, FedPCASettings)
    select: Select = ConfidentOfTheMislabeled(settings.least_samples) if high_confidence else nothing_of_the_mislabeled
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
