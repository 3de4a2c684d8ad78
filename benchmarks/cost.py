"""What a FedPCA round costs beside a FedAvg round, part by part; ratios of medians, interleaved."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from benchmarks.workers import shards_of, times_of
from fedpca.core import Method, Recipe, Server, Stage, Vectors
from fedpca.loop import play_round
from fedpca.methods.base import base
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client.probe import MORE_RARE
from fedpca.parts.client.step import SETTLED, descend
from fedpca.runs.check import check_experiment, method_of, plan_of
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

WORKLOADS: dict[str, tuple[str, tuple[int, int, int], int, int]] = {  # model, shape, clients, images each
    "digits, cnn-small, 20 x 72": ("cnn-small", (1, 8, 8), 20, 72),
    "fashion, mlp, 50 x 200": ("mlp", (1, 28, 28), 50, 200),
    "cifar, cnn-small, 10 x 200": ("cnn-small", (3, 32, 32), 10, 200),
    "digits, mlp, 100 x 18": ("mlp", (1, 8, 8), 100, 18),
}


def measure() -> dict[str, dict[str, float]]:
    """Per workload: each round's time over FedAvg's, parts added one after another."""
    return {name: _ratios(*workload) for name, workload in WORKLOADS.items()}


def _ratios(model: str, shape: tuple[int, int, int], clients: int, images: int) -> dict[str, float]:
    experiment = check_experiment({"model": {"name": model}, "data": {"clients": clients}}, "benchmark")
    plain = base(plan_of(experiment))
    full = method_of(experiment, "fedpca-hs").stages[-1].recipe
    auto = method_of(experiment, "fedpca-hs-auto").stages[-1].recipe
    before = experiment.model_copy(update={"method": {"fedpca-hs-auto": {"identify": "slope"}}})
    without_sharpness = replace(full, train=replace(full.train, step=descend))  # type: ignore[type-var]
    recipes = {
        "fedavg": plain,
        "+ report": replace(plain, report=full.report),
        "+ mixture": replace(plain, report=full.report, diagnose=full.diagnose),
        "+ selection and weights": without_sharpness,
        "+ GSAM = fedpca-hs": full,
        "fedpca-hs-auto": auto,
        "the same by slope": method_of(before, "fedpca-hs-auto").stages[-1].recipe,
    }
    tuned = method_of(experiment, "fedpca").stages[-1].recipe
    shards = shards_of(shape, clients, images)
    workers = Workers([build(model, shape, 10, 0) for _ in range(2)])
    params = params_of(workers.nets[0])
    tried = {MORE_RARE: 1e-3 * torch.ones_like(params.weights)}

    def play_once(recipe: Recipe, shown: Vectors) -> Server:
        method, start = Method("measured", (Stage(recipe),)), Server(params, shown=shown)
        return play_round(recipe, InProcess(method, shards, workers, seed=0), start, rounds=20)

    played = {name: partial(play_once, recipe, {}) for name, recipe in recipes.items()}
    played["fedpca"] = partial(play_once, tuned, {})
    played["fedpca, trying a lift"] = partial(play_once, tuned, tried)
    played["fedpca, trying a lift, with GSAM"] = partial(play_once, tuned, {**tried, SETTLED: torch.zeros(1)})
    medians = times_of(played)
    workers.close()
    return {name: round(value / medians["fedavg"], 2) for name, value in medians.items()}
