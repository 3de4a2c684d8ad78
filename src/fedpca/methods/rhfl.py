"""RHFL's client confidence: weights by how fast losses fall."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.methods.sce import Floor
from fedpca.settings.base import NonNegative, Settings


class RHFLSettings(Settings):
    """What `[method.rhfl]` takes."""

    eta: NonNegative = 0.5  # how much the fall of a loss counts; 0: all count alike
    alpha: NonNegative = 0.1  # of cross-entropy in the reported loss
    beta: NonNegative = 1.0  # of reverse cross-entropy in it
    floor: Floor = 1e-4  # what counts as the share of a class that is not the label
    published: bool = False  # True: falls over their sum, whose sign can turn the order of the clients round


@method("rhfl", settings=RHFLSettings, family="robust", year=2022)
def rhfl(plan: Plan, settings: RHFLSettings) -> Method:
    """Clients count more the faster their loss falls: RHFL's confidence as weights (Fang and Ye 2022)."""
    from fedpca.parts.client.symmetric import SymmetricLoss, SymmetricMix
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.gap import by_share
    from fedpca.parts.server.trust import TrustFallingLosses

    recipe = replace(
        base(plan),
        report=SymmetricLoss(SymmetricMix(settings.alpha, settings.beta, settings.floor)),
        diagnose=TrustFallingLosses(settings.eta, settings.published),
        aggregate=WeightedMean(by_share, smoothing=1.0),
    )
    return one_stage(recipe)
