"""A FedAvg round with one worker, with two threads and with two processes; ratios of medians, interleaved."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor

import torch

from fedpca.core import ClientId, Net, Order, Params, Server, Shard, Site, Update, Verdict
from fedpca.loop import play_round
from fedpca.models.build import build
from fedpca.models.flat import load, params_of
from fedpca.rng import stream
from fedpca.runs.check import check_experiment, method_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.answer import answer_train
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

REPEATS = 5
WORKLOADS: dict[str, tuple[str, tuple[int, int, int], int, int]] = {  # model, shape, clients, images each
    "digits, cnn-small, 20 x 72": ("cnn-small", (1, 8, 8), 20, 72),
    "digits, mlp, 100 x 18": ("mlp", (1, 8, 8), 100, 18),
    "cifar, cnn-small, 8 x 200": ("cnn-small", (3, 32, 32), 8, 200),
    "cifar, resnet18, 4 x 32": ("resnet18", (3, 32, 32), 4, 32),
}


def measure() -> dict[str, dict[str, float]]:
    """Per workload: the time of two threads and of two processes over that of one worker."""
    return {name: _ratios(*workload) for name, workload in WORKLOADS.items()}


def _ratios(model: str, shape: tuple[int, int, int], clients: int, images: int) -> dict[str, float]:
    experiment = check_experiment({"model": {"name": model}, "data": {"clients": clients}}, "benchmark")
    shards = shards_of(shape, clients, images)
    pool = _processes(experiment, model, shape, shards)  # forked before this process has threads of its own
    nets = [build(model, shape, 10, 0) for _ in range(2)]
    start = params_of(nets[0])
    ways: dict[str, Callable[[], object]] = {
        "one": lambda: _round(experiment, shards, one, start),
        "threads": lambda: _round(experiment, shards, two, start),
        "processes": lambda: list(pool.map(_answer, [(client, start) for client in shards], chunksize=clients // 4)),
    }
    one, two = Workers(nets[:1]), Workers(nets)
    medians = times_of(ways)
    two.close()
    pool.shutdown()
    return {name: round(medians[name] / medians["one"], 2) for name in ("threads", "processes")}


def times_of(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each way in seconds, measured in turns; the first turn is to warm up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(REPEATS + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if repeat:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def shards_of(shape: tuple[int, int, int], clients: int, images: int) -> dict[ClientId, Shard]:
    rng = torch.Generator().manual_seed(0)
    return {
        str(client): Shard(
            torch.randint(0, 256, (images, *shape), dtype=torch.uint8, generator=rng),
            torch.randint(0, 10, (images,), generator=rng),
        )
        for client in range(clients)
    }


def _round(experiment: Experiment, shards: Mapping[ClientId, Shard], workers: Workers, start: Params) -> Server:
    method = method_of(experiment, "fedavg")
    return play_round(method.recipe(1), InProcess(method, shards, workers, seed=0), Server(start), rounds=1)


_here: dict[str, object] = {}  # what a forked process works with


def _processes(experiment: Experiment, model: str, shape: tuple[int, int, int], shards: object) -> ProcessPoolExecutor:
    """Two processes that hold model and data; weights travel both ways, as they must."""

    def begin() -> None:
        torch.set_num_threads(1)
        _here.update(net=build(model, shape, 10, 0), shards=shards, recipe=method_of(experiment, "fedavg").recipe(1))

    return ProcessPoolExecutor(2, multiprocessing.get_context("fork"), begin)


def _answer(task: tuple[ClientId, Params]) -> Update:
    client, start = task
    net, shards = _here["net"], _here["shards"]
    assert isinstance(net, Net)
    assert isinstance(shards, dict)
    load(net, start)
    shard = shards[client]
    site = Site(net, shard.x, shard.y, {}, Order(1, 1, Verdict()), stream(0, "train", 1, client))
    return answer_train(_here["recipe"], site)  # type: ignore[arg-type]
