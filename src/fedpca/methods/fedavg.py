"""FedAvg."""

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NoSettings


@method("fedavg", family="baseline", year=2017)
def fedavg(plan: Plan, settings: NoSettings) -> Method:
    """Size-weighted mean of the clients' models (McMahan et al. 2017)."""
    return one_stage(base(plan))
