"""Centered clipping."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Count, NonNegative, Settings


class CenteredClippingSettings(Settings):
    """What `[method.centered-clipping]` takes."""

    radius: NonNegative | None = None  # how far an update counts; the length of the median update if not given
    steps: Count = 3  # of the center towards the updates, in each round
    history: bool = False  # whether the center begins where it ended last round


@method("centered-clipping", settings=CenteredClippingSettings, family="robust", year=2021)
def centered_clipping(plan: Plan, settings: CenteredClippingSettings) -> Method:
    """Steps towards the clients' updates, each no longer than a radius (Karimireddy et al. 2021)."""
    from fedpca.parts.server.clip import CenteredClipping

    rule = CenteredClipping(settings.radius, settings.steps, settings.history)
    return one_stage(replace(base(plan), aggregate=rule))
