"""What a deployment's bounds cost where nobody exceeds them: a round with them over one without, in turns.

Ratios of medians of processor time, which other programs on the machine disturb less than the time that passes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from benchmarks.workers import shards_of
from fedpca.core import Method, Server, Stage
from fedpca.loop import play_round
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import check_experiment, method_of
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from fedpca.sites.settings import BOUNDS

WORKLOADS: dict[str, tuple[str, tuple[int, int, int], int, int]] = {  # model, shape, clients, images each
    "digits, mlp, 20 x 72": ("mlp", (1, 8, 8), 20, 72),
    "fashion, mlp-16, 50 x 1200": ("mlp-16", (1, 14, 14), 50, 1200),
    "digits, cnn-small, 20 x 72": ("cnn-small", (1, 8, 8), 20, 72),
}
METHODS = ("fedavg", "fedpca-d", "fedpca")
REPEATS = 40


def measure() -> dict[str, dict[str, float]]:
    """Per workload and method: the processor time of a round within bounds over that of one without."""
    return {name: {method: _ratio(method, *workload) for method in METHODS} for name, workload in WORKLOADS.items()}


def _ratio(name: str, model: str, shape: tuple[int, int, int], clients: int, images: int) -> float:
    shards = shards_of(shape, clients, images)
    workers = Workers([build(model, shape, 10, 0)])
    params = params_of(workers.nets[0])

    def way(aggregation: Mapping[str, float]) -> Callable[[], Server]:
        table = {"model": {"name": model}, "data": {"clients": clients}, "aggregation": dict(aggregation)}
        stage = Stage(method_of(check_experiment(table, "benchmark"), name).stages[-1].recipe)
        crowd = InProcess(Method("measured", (stage,)), shards, workers, seed=0)
        return lambda: play_round(stage.recipe, crowd, Server(params), rounds=20)

    medians = _processor_times({"plain": way({}), "bounded": way(BOUNDS)})
    workers.close()
    return round(medians["bounded"] / medians["plain"], 3)


def _processor_times(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each way, one after the other in each turn, the first of which is to warm up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(REPEATS + 1):
        for name, way in ways.items():
            began = time.process_time()
            way()
            if repeat:
                times[name].append(time.process_time() - began)
    return {name: statistics.median(values) for name, values in times.items()}
