"""The coordinate-wise trimmed mean."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Settings


class TrimmedMeanSettings(Settings):
    """What `[method.trimmed-mean]` takes."""

    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.2  # share of the clients left out at each end of each coordinate


@method("trimmed-mean", settings=TrimmedMeanSettings, family="robust", year=2018)
def trimmed_mean(plan: Plan, settings: TrimmedMeanSettings) -> Method:
    """Per coordinate the mean without the lowest and highest values (Yin et al. 2018)."""
    from fedpca.parts.server.robust import PerCoordinate, Trimmed

    return one_stage(replace(base(plan), aggregate=PerCoordinate(Trimmed(settings.trim))))
