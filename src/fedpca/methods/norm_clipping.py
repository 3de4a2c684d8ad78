"""Clipping of the updates' norms."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NonNegative, Settings


class NormClippingSettings(Settings):
    """What `[method.norm-clipping]` takes."""

    radius: NonNegative | None = None  # longest update that counts as it is; that of the median client if not given


@method("norm-clipping", settings=NormClippingSettings, family="robust", year=2019)
def norm_clipping(plan: Plan, settings: NormClippingSettings) -> Method:
    """FedAvg of updates that are shortened to a common length (Sun et al. 2019)."""
    from fedpca.parts.server.clip import NormClipping

    recipe = base(plan)
    return one_stage(replace(recipe, aggregate=NormClipping(recipe.aggregate, settings.radius)))
