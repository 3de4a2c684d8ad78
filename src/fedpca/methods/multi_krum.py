"""Multi-Krum: the mean of the updates that have the nearest neighbours."""

from typing import Annotated

from pydantic import Field

from fedpca.core import Method
from fedpca.methods.define import Plan, method
from fedpca.methods.krum import nearest_neighbours
from fedpca.settings.base import Count, Settings


class MultiKrumSettings(Settings):
    """What `[method.multi-krum]` takes."""

    malicious: Annotated[int, Field(ge=0)] | None = None  # f; a fifth of the clients of a round if not given
    keep: Count | None = None  # m, how many are averaged; all but f if not given


@method("multi-krum", settings=MultiKrumSettings, family="robust", year=2017)
def multi_krum(plan: Plan, settings: MultiKrumSettings) -> Method:
    """Mean by size of the models with the nearest neighbours (Blanchard et al. 2017)."""
    return nearest_neighbours("multi-krum", plan, settings.malicious, settings.keep)
