"""Krum: the one update that has the nearest neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedpca.core import Method
from fedpca.errors import UserError
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import Plan, method
from fedpca.settings.base import Settings

SHARE = 0.2  # of the clients of a round, that f is unless it is given


class KrumSettings(Settings):
    """What `[method.krum]` takes."""

    malicious: Annotated[int, Field(ge=0)] | None = None  # f; a fifth of the clients of a round if not given


@method("krum", settings=KrumSettings, family="robust", year=2017)
def krum(plan: Plan, settings: KrumSettings) -> Method:
    """The one model with the nearest neighbours (Blanchard et al. 2017)."""
    return nearest_neighbours("krum", plan, settings.malicious, keep=1)


def nearest_neighbours(name: str, plan: Plan, malicious: int | None, keep: int | None) -> Method:
    """Krum or Multi-Krum; refuses more malicious clients than either can withstand."""
    from fedpca.parts.server.krum import NearestNeighbours

    rule = NearestNeighbours(malicious, SHARE, keep)
    if malicious and plan.cohort_size and plan.cohort_size < 2 * malicious + 3:
        raise UserError(
            f"{name}: method.{name}.malicious = {malicious} needs 2 x {malicious} + 3 clients in a round, and there "
            f"are {plan.cohort_size}: set it to {max(0, (plan.cohort_size - 3) // 2)} or less"
        )
    return one_stage(replace(base(plan), aggregate=rule))
