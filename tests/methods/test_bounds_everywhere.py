"""Bounds of `[aggregation]` hold in every round of every method, a warm-up included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedpca.core import Params, Update
from fedpca.methods.registry import method_names
from fedpca.sites.settings import BOUNDS
from tests.liars import played

TABLES = {"fednoro": {"warmup": 1}, "fedcorr": {"stages": [2, 1]}}


def far(params: Params, update: Update) -> Update:
    """An update that is as long as one can be and still be looked at."""
    if update.params is None:
        return update
    return replace(update, params=replace(update.params, weights=update.params.weights + 1e16))


@pytest.mark.parametrize("name", [name for name in method_names() if "rfa" not in name and "median" not in name])
def test_one_client_never_moves_the_model_far(name: str):
    """X+d once warmed up without them: one update of 1e16 in its first round was the model."""
    warm = {own: {"warmup": 2} for own in (name,) if name.startswith("fedpca") or name.endswith("+d")}
    for server in played(name, forge=far, method={**TABLES, **warm}, aggregation=dict(BOUNDS)):
        assert float(server.params.weights.abs().max()) < 100, server.round
