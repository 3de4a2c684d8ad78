"""From a method's name, a plan and settings to the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from fedpca.core import Method
from fedpca.errors import UserError
from fedpca.methods.base import base
from fedpca.methods.bounded import bounded
from fedpca.methods.combine import MixSettings, plus
from fedpca.methods.define import Plan
from fedpca.methods.drop import DropSettings, with_drop
from fedpca.models.user_code import is_users_error, trying
from fedpca.settings.base import Settings

Tables = Mapping[str, Mapping[str, object]]  # [method.NAME]


def compose(name: str, plan: Plan, tables: Tables | None = None) -> Method:
    """The method of this name, `A+B` and `X+d` included.

    >>> from fedpca import Plan, compose
    >>> [stage.rounds for stage in compose("fedpca-d", Plan(rounds=30), {"fedpca-d": {"warmup": 5}}).stages]
    [5, None]
    """
    from fedpca.methods.registry import parse, settings_of  # here: the registry imports every module of this folder

    simple, drops = parse(name)

    def settings(table: str) -> Settings:
        return settings_of(table, name, (tables or {}).get(table, {}))

    sides = [_build(part, plan, settings(part)) for part in simple]
    method = sides[0]
    if len(sides) > 1:
        share = cast("MixSettings", settings("+".join(simple))).share
        method = plus(sides[0], sides[1], base(plan), share)
    if drops:
        method = with_drop(method, plan, cast("DropSettings", settings(name)))
    return replace(method, name=name)


def _build(name: str, plan: Plan, settings: Settings) -> Method:
    from fedpca.methods.registry import METHODS

    with trying(f"method {name!r}: building it", is_users_error):
        method = METHODS[name].build(plan, settings)
    if not isinstance(method, Method):
        raise UserError(f"method {name!r} must return a fedpca.Method, got {type(method).__name__}")
    return replace(bounded(method, plan.aggregation), name=name)
