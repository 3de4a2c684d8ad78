"""X + (D): a method among the clients that FedPCA does not judge mislabeled."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from fedpca.core import Method, Recipe, Stage
from fedpca.methods.base import base, one_stage
from fedpca.methods.bounded import bounded
from fedpca.methods.define import Plan
from fedpca.methods.identify import RENAMED, WARMUP, IdentifySettings, identification
from fedpca.settings.base import Settings

LISTED = ("fedavg", "qfedavg", "fedce", "fedga", "fedism")  # the paper's; +d goes with every method that does not judge


class DropSettings(Settings):
    """What `[method."X+d"]` takes."""

    RENAMED: ClassVar = RENAMED

    warmup: Annotated[int, Field(ge=0)] = WARMUP
    identify: IdentifySettings = IdentifySettings()


def with_drop(method: Method, plan: Plan, settings: DropSettings) -> Method:
    """FedAvg to warm up, then the method, each stage of it, among those who are not judged mislabeled."""
    stages = (replace(stage, recipe=_without_the_mislabeled(stage.recipe, plan, settings)) for stage in method.stages)
    warmup = bounded(one_stage(base(plan)), plan.aggregation).stages[0].recipe  # the method has its bounds already
    return Method(f"{method.name}+d", (Stage(warmup, settings.warmup), *stages))


def _without_the_mislabeled(recipe: Recipe, plan: Plan, settings: DropSettings) -> Recipe:
    """The recipe after identification: both report, both diagnose, the mislabeled neither train nor count."""
    from fedpca.parts.client.report import JoinReports
    from fedpca.parts.client.select import NothingOfTheMislabeled
    from fedpca.parts.server.aggregate import WithoutTheMislabeled
    from fedpca.parts.server.diagnose import InTurn

    report, diagnose = identification(plan, settings.identify)
    return replace(
        recipe,
        report=JoinReports((report, recipe.report)) if recipe.report else report,
        diagnose=InTurn((diagnose, recipe.diagnose)),
        select=NothingOfTheMislabeled(recipe.select),
        aggregate=WithoutTheMislabeled(recipe.aggregate),
    )
