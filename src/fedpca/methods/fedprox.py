"""FedProx: local models kept near the global one."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings


class FedProxSettings(Settings):
    """What `[method.fedprox]` takes."""

    mu: NonNegative = 0.01  # strength of the pull towards the global model


@method("fedprox", settings=FedProxSettings, family="optimisation", year=2020)
def fedprox(plan: Plan, settings: FedProxSettings) -> Method:
    """FedAvg whose clients are pulled back to the global model (Li et al. 2020)."""
    from fedpca.parts.client.loss import NearStart

    train = training(plan)
    return one_stage(replace(base(plan), train=replace(train, loss=NearStart(settings.mu, train.loss))))
