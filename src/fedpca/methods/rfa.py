"""RFA: the geometric median."""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Positive, Settings


class RFASettings(Settings):
    """What `[method.rfa]` takes."""

    RENAMED: ClassVar = {"least_distance": "min_distance"}

    steps: Annotated[int, Field(ge=0)] = 4  # of Weiszfeld's algorithm
    min_distance: Positive = 1e-5  # distances below this count as this
    tolerance: NonNegative = 1e-6  # relative change of the summed distance at which the steps end


@method("rfa", settings=RFASettings, family="robust", year=2019)
def rfa(plan: Plan, settings: RFASettings) -> Method:
    """Geometric median by smoothed Weiszfeld steps (Pillutla et al. 2022)."""
    from fedpca.parts.server.robust import GeometricMedian

    rule = GeometricMedian(settings.steps, settings.min_distance, settings.tolerance)
    return one_stage(replace(base(plan), aggregate=rule))
