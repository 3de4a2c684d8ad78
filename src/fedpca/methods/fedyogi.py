"""FedYogi: Yogi on the server."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.methods.fedadam import Beta
from fedpca.settings.base import NonNegative, Positive, Settings


class FedYogiSettings(Settings):
    """What `[method.fedyogi]` takes."""

    lr: Positive = 0.01  # of the server's step
    beta1: Beta = 0.9  # share of the last step that is carried on
    beta2: Beta = 0.99  # how slowly its square follows
    tau: NonNegative = 1e-3  # adaptivity: added to the root of the squares


@method("fedyogi", settings=FedYogiSettings, family="optimisation", year=2021)
def fedyogi(plan: Plan, settings: FedYogiSettings) -> Method:
    """FedAvg with Yogi on the server, whose squares shrink slowly (Reddi et al. 2021)."""
    from fedpca.parts.server.optimise import ServerAdam, ServerStep

    moments = settings.beta1, settings.beta2, settings.tau
    recipe, optimiser = base(plan), ServerAdam(settings.lr, *moments, correction="none", yogi=True)
    return one_stage(replace(recipe, aggregate=ServerStep(recipe.aggregate, optimiser)))
