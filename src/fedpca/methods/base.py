"""What methods are made from: the recipe of FedAvg, of which each replaces what it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpca.core import Method, Recipe, Stage
from fedpca.methods.define import Plan

if TYPE_CHECKING:
    from fedpca.parts.client.train import LocalTraining


def base(plan: Plan) -> Recipe:
    """The recipe that methods change: train on everything, average by size.

    >>> from fedpca import Plan, base
    >>> base(Plan(rounds=3)).report is None
    True
    """
    from fedpca.parts.client.select import everything
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.cohort import SampleClients, everyone
    from fedpca.parts.server.diagnose import remember
    from fedpca.parts.server.weigh import by_size

    return Recipe(
        report=None,
        diagnose=remember,
        select=everything,
        train=training(plan),
        aggregate=WeightedMean(by_size, smoothing=1.0),
        cohort=everyone if plan.participation == 1 else SampleClients(plan.participation, plan.seed),
    )


def training(plan: Plan) -> LocalTraining:
    """Local training as the plan's settings say."""
    from fedpca.parts.client.augment import AUGMENTATIONS
    from fedpca.parts.client.loss import LogitAdjustment, cross_entropy
    from fedpca.parts.client.train import Descent, LocalTraining

    settings = plan.training
    return LocalTraining(
        Descent(settings.optimizer, settings.lr, settings.momentum, settings.weight_decay),
        batch=settings.batch,
        epochs=settings.epochs,
        augment=AUGMENTATIONS[settings.augment],
        loss=LogitAdjustment(tau=1.0) if settings.logit_adjustment else cross_entropy,
    )


def one_stage(recipe: Recipe) -> Method:
    """A method that does the same in every round; its name is that of its definition.

    >>> from fedpca import Plan, base, one_stage
    >>> len(one_stage(base(Plan(rounds=3))).stages)
    1
    """
    return Method("", (Stage(recipe),))
