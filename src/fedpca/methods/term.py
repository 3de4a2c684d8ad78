"""TERM: tilted empirical risk minimisation."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Settings


class TERMSettings(Settings):
    """What `[method.term]` takes."""

    tilt: float = 0.1  # t: above 0 towards clients with high losses, below 0 away from them
    by_size: bool = True  # False: weights exp(t l) without N, as the original


@method("term", settings=TERMSettings, family="fair", year=2021)
def term(plan: Plan, settings: TERMSettings) -> Method:
    """Weights N exp(t loss): a smooth maximum of the clients' losses (Li et al. 2021)."""
    from fedpca.parts.client.report import mean_loss
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.weigh import ByTilt

    mean = WeightedMean(ByTilt(settings.tilt, settings.by_size), smoothing=1.0)
    return one_stage(replace(base(plan), report=mean_loss, aggregate=mean))
