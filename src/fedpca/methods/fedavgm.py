"""FedAvgM: momentum on the server."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Positive, Settings


class FedAvgMSettings(Settings):
    """What `[method.fedavgm]` takes."""

    lr: Positive = 1.0  # of the server's step
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9


@method("fedavgm", settings=FedAvgMSettings, family="optimisation", year=2019)
def fedavgm(plan: Plan, settings: FedAvgMSettings) -> Method:
    """FedAvg with momentum on the server (Hsu et al. 2019)."""
    from fedpca.parts.server.optimise import ServerMomentum, ServerStep

    recipe = base(plan)
    rule = ServerStep(recipe.aggregate, ServerMomentum(settings.lr, settings.momentum))
    return one_stage(replace(recipe, aggregate=rule))
