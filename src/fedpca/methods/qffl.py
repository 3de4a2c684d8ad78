"""The original q-FFL."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings


class QFFLSettings(Settings):
    """What `[method.qffl]` takes."""

    q: NonNegative = 1.0  # strength of fairness


@method("qffl", settings=QFFLSettings, family="fair", year=2020)
def qffl(plan: Plan, settings: QFFLSettings) -> Method:
    """The original q-FFL with its dynamic step (Li et al. 2020)."""
    from fedpca.parts.client.report import mean_loss
    from fedpca.parts.server.screened import DynamicStep

    rule = DynamicStep(settings.q, plan.training.lr)
    return one_stage(replace(base(plan), report=mean_loss, aggregate=rule))
