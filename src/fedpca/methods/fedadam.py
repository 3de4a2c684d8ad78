"""FedAdam: Adam on the server."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Positive, Settings

Beta = Annotated[float, Field(ge=0, lt=1)]


class FedAdamSettings(Settings):
    """What `[method.fedadam]` takes."""

    lr: Positive = 0.1  # of the server's step
    beta1: Beta = 0.9  # share of the last step that is carried on
    beta2: Beta = 0.99  # the same of its square
    tau: NonNegative = 1e-3  # adaptivity: added to the root of the squares
    correction: Literal["none", "adam", "flower"] = "none"  # of moments that begin at zero


@method("fedadam", settings=FedAdamSettings, family="optimisation", year=2021)
def fedadam(plan: Plan, settings: FedAdamSettings) -> Method:
    """FedAvg with Adam on the server (Reddi et al. 2021)."""
    from fedpca.parts.server.optimise import ServerAdam, ServerStep

    moments = settings.beta1, settings.beta2, settings.tau
    recipe, optimiser = base(plan), ServerAdam(settings.lr, *moments, settings.correction, yogi=False)
    return one_stage(replace(recipe, aggregate=ServerStep(recipe.aggregate, optimiser)))
