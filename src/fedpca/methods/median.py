"""The coordinate-wise median."""

from dataclasses import replace

from fedpca.core import Method
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import NoSettings


@method("median", family="robust", year=2018)
def median(plan: Plan, settings: NoSettings) -> Method:
    """Coordinate-wise median (Yin et al. 2018)."""
    from fedpca.parts.server.robust import coordinate_median

    return one_stage(replace(base(plan), aggregate=coordinate_median))
