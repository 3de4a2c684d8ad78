"""Every method as a composition of parts."""

from __future__ import annotations

from collections.abc import Callable

from fedpca.core import Method, Recipe, Stage
from fedpca.parts.aggregate import WeightedMean
from fedpca.parts.augment import CropFlip, unchanged
from fedpca.parts.cohort import Sampled, everyone
from fedpca.parts.diagnose import remember
from fedpca.parts.select import everything
from fedpca.parts.train import Descent, LocalTraining
from fedpca.parts.weigh import by_size
from fedpca.scenario import Experiment


def base(experiment: Experiment) -> Recipe:
    """The recipe that methods change: train on everything, average by size."""
    training = experiment.training
    return Recipe(
        report=None,
        diagnose=remember,
        select=everything,
        train=LocalTraining(
            Descent(training.optimizer, training.lr, training.momentum, training.weight_decay),
            batch=training.batch,
            epochs=training.epochs,
            augment=CropFlip() if training.augment == "crop-flip" else unchanged,
        ),
        aggregate=WeightedMean(by_size),
        cohort=everyone if experiment.participation == 1 else Sampled(experiment.participation, experiment.seeds[0]),
    )


def single(name: str, recipe: Recipe) -> Method:
    """A method of one stage."""
    return Method(name, (Stage(recipe),))


def fedavg(experiment: Experiment) -> Method:
    """McMahan et al. 2017: clients train on all they have, the server averages by size."""
    return single("fedavg", base(experiment))


METHODS: dict[str, Callable[[Experiment], Method]] = {
    "fedavg": fedavg,
}
