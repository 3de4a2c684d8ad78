"""No federation: all data in one place."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NoSettings


@method("central", family="apart", alone="has no federation: it trains on all data in one place")
def central(plan: Plan, settings: NoSettings) -> Method:
    """One model trained on all data in one place, wrong labels included: what sharing them would give."""
    from fedpca.parts.server.robust import coordinate_median

    # the median of the one model is that model, and gives nobody a weight: its client is none of those in the tables
    return replace(one_stage(replace(base(plan), aggregate=coordinate_median)), pools_data=True)
