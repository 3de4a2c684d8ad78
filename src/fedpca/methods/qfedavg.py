"""q-FedAvg as the FedPCA paper simplifies it."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings


class QFedAvgSettings(Settings):
    """What `[method.qfedavg]` takes."""

    q: NonNegative = 1.0  # strength of fairness; the paper searches 0.1, 0.25, 0.5, 1, 2, 5
    by_size: bool = True  # False: weights l^q without N, as the authors' other code has it


@method("qfedavg", settings=QFedAvgSettings, family="fair", year=2020)
def qfedavg(plan: Plan, settings: QFedAvgSettings) -> Method:
    """Weights N loss^q: q-FedAvg as the paper simplifies it (after Li et al. 2020)."""
    from fedpca.parts.client.report import mean_loss
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.weigh import ByLoss

    mean = WeightedMean(ByLoss(settings.q, settings.by_size), smoothing=1.0)
    return one_stage(replace(base(plan), report=mean_loss, aggregate=mean))
