"""AFL: agnostic federated learning."""

from dataclasses import replace
from typing import Literal

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings


class AFLSettings(Settings):
    """What `[method.afl]` takes."""

    step: NonNegative = 0.1  # of the weights up the losses, in each round
    ascent: Literal["projection", "exponentiated"] = "projection"  # how they stay shares


@method("afl", settings=AFLSettings, family="fair", year=2019)
def afl(plan: Plan, settings: AFLSettings) -> Method:
    """Weights climb the clients' losses, for the worst mixture of clients (Mohri et al. 2019)."""
    from fedpca.parts.client.report import mean_loss
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.agnostic import Ascend
    from fedpca.parts.server.gap import by_share

    recipe = replace(
        base(plan),
        report=mean_loss,
        diagnose=Ascend(settings.step, settings.ascent == "exponentiated"),
        aggregate=WeightedMean(by_share, smoothing=1.0),
    )
    return one_stage(recipe)
