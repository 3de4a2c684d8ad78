"""SCE: symmetric cross-entropy in local training."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method
from fedpca.methods.base import base, one_stage, training
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings

Floor = Annotated[float, Field(gt=0, le=1)]


class SCESettings(Settings):
    """What `[method.sce]` takes."""

    alpha: NonNegative = 0.1  # of cross-entropy
    beta: NonNegative = 1.0  # of reverse cross-entropy
    floor: Floor = 1e-4  # what counts as the share of a class that is not the label


@method("sce", settings=SCESettings, family="robust", year=2019)
def sce(plan: Plan, settings: SCESettings) -> Method:
    """FedAvg with symmetric cross-entropy, which believes doubtful labels less (Wang et al. 2019)."""
    from fedpca.parts.client.symmetric import SymmetricCrossEntropy, SymmetricMix

    mix, plain = SymmetricMix(settings.alpha, settings.beta, settings.floor), training(plan)
    return one_stage(replace(base(plan), train=replace(plain, loss=SymmetricCrossEntropy(mix, plain.loss))))
