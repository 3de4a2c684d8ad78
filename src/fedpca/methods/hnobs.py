"""H-nobs: screening by norm, then q-FedAvg."""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from fedpca.core import Method
from fedpca.errors import UserError
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings


class HNobsSettings(Settings):
    """What `[method.hnobs]` takes."""

    RENAMED: ClassVar = {"screened": "screen_count"}

    q: NonNegative = 1.0  # strength of fairness
    screen_count: Annotated[int, Field(ge=0)] | None = None  # updates left out; the experiment fills in the true number


@method("hnobs", settings=HNobsSettings, oracle="screen_count", family="fair + robust", year=2023)
def hnobs(plan: Plan, settings: HNobsSettings) -> Method:
    """Screens out the longest updates, as many as there are mislabeled clients (an oracle), then q-FedAvg."""
    from fedpca.parts.client.report import mean_loss
    from fedpca.parts.server.aggregate import WeightedMean
    from fedpca.parts.server.screened import WithoutLongest
    from fedpca.parts.server.weigh import ByLoss

    count = settings.screen_count
    if count is None:
        raise UserError("hnobs: nothing says how many updates to leave out; set method.hnobs.screen_count")
    if plan.cohort_size and count >= plan.cohort_size:
        raise UserError(f"hnobs: it would screen out {count} of the {plan.cohort_size} clients of a round: all of them")
    rule = WithoutLongest(count, WeightedMean(ByLoss(settings.q, by_size=True), smoothing=1.0))
    return one_stage(replace(base(plan), report=mean_loss, aggregate=rule))
