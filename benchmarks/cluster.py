"""A Dask cluster of two one-core workers on loopback beside this process: a round, its bits, and what a run costs.

A round of W2, and of four clients with CIFAR-10, whose clients train in two threads here and in two processes there, in
turns. Then 1,000 runs of one round each, with `--jobs 2` and as tasks, a block of each in turn.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.workloads import DECAY, LR, MOMENTUM, WORKLOADS
from fedpca.cluster.connect import Link, connected
from fedpca.cluster.grid import Grid
from fedpca.cluster.options import ClusterOptions
from fedpca.cluster.spread import spread_over
from fedpca.core import Server
from fedpca.loop import play
from fedpca.models.build import build_model
from fedpca.models.flat import params_of
from fedpca.runs.cell import Cell, Watch, cells
from fedpca.runs.check import check_experiment
from fedpca.runs.processes import play_in_processes
from fedpca.runs.run import Prepared, in_process
from fedpca.simulate.workers import Workers

TURNS, RUNS, BLOCKS = 3, 1000, 4


def measure() -> dict[str, dict[str, float]]:
    """All of it, with one cluster; CIFAR-10 where `FEDPCA_DATA` has it."""
    with TemporaryDirectory() as name, _cluster(folder := Path(name)) as link:
        found = {"W2": spread(link, _w2(folder), TURNS)}
        if has_cifar10():
            found["cifar10"] = spread(link, _cifar10(folder), TURNS)
        return {**found, "runs": overhead(link, folder)}


@contextmanager
def _cluster(folder: Path) -> Iterator[Link]:
    with connected(ClusterOptions("local:2"), folder, print) as link:
        yield link


def spread(link: Link, cell: Cell, turns: int) -> dict[str, float]:
    """The median round with two one-core workers over that with two threads here; whether all bits are the same."""
    _, federation = Prepared().of(cell)
    nets = [build_model(cell.settings.model, federation.shape, len(federation.classes), 0) for _ in range(2)]
    start = Server(params_of(nets[0]))
    with closing(Workers(nets)) as pool:
        places = {"threads": in_process, "workers": spread_over(link, None)}
        clients = {name: place(cell, federation, pool) for name, place in places.items()}
        rounds = {name: play(own.method, own, start, rounds=turns + 1) for name, own in clients.items()}
        times: dict[str, list[float]] = {name: [] for name in rounds}
        for turn in range(turns + 1):
            order = list(rounds)[:: 1 if turn % 2 else -1]
            servers = {name: _timed(rounds[name], times[name]) for name in order}
        vectors = zip(*(server.params.vectors for server in servers.values()), strict=True)
        same = all(one.equal(other) for one, other in vectors)
    return {**_ratios({name: values[1:] for name, values in times.items()}), "same_bits": same}


def _ratios(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Of the medians, and of the shortest, which others on the machine hardly affect."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    seconds = {f"seconds_{name}": round(value, 2) for name, value in medians.items()}
    fastest = min(times["workers"]) / min(times["threads"])
    return {
        "ratio": round(medians["workers"] / medians["threads"], 3),
        "ratio_of_fastest": round(fastest, 3),
        **seconds,
    }


def _timed(rounds: Iterator[Server], times: list[float]) -> Server:
    began = time.perf_counter()
    server = next(rounds)
    times.append(time.perf_counter() - began)
    return server


def _w2(folder: Path) -> Cell:
    """W2 as an experiment, which workers can read too: noise, always the same."""
    workload, rng, path = WORKLOADS["W2"], np.random.default_rng(0), folder / "w2.npz"
    count = workload.clients * workload.images
    x = rng.integers(0, 256, (count + 10, 32, 32, 3), dtype=np.uint8)
    y = np.arange(count + 10) % 10
    np.savez(path, x_train=x[:count], y_train=y[:count], x_test=x[count:], y_test=y[count:])
    return _cell({"dataset": str(path), "clients": workload.clients}, {}, folder / "w2")


def has_cifar10() -> bool:
    """Whether `FEDPCA_DATA` names a folder that has it."""
    return "FEDPCA_DATA" in os.environ and Path(os.environ["FEDPCA_DATA"], "cifar10").is_dir()


def _cifar10(folder: Path) -> Cell:
    """W2's clients with real images, cropped and flipped as in `paper/cifar10`."""
    clients, images = WORKLOADS["W2"].clients, WORKLOADS["W2"].images
    data = {"dataset": "cifar10", "clients": clients, "train_images": clients * images}
    return _cell(data, {"augment": "crop-flip"}, folder / "cifar10")


def _cell(data: Mapping[str, object], training: Mapping[str, object], folder: Path) -> Cell:
    workload = WORKLOADS["W2"]
    own = {"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY, "batch": workload.batch, **training}
    table = {"data": {**data}, "model": {"name": workload.model}, "training": own, "methods": ["fedavg"], "seeds": [0]}
    return cells(check_experiment(table, "benchmark"), folder)[0]


def overhead(link: Link, folder: Path, runs: int = RUNS, blocks: int = BLOCKS) -> dict[str, float]:
    """Milliseconds that a run of one round takes in either way, two at a time, and the difference."""
    table = {"rounds": 1, "data": {"clients": 4}, "model": {"name": "mlp"}, "methods": ["fedavg"]}
    experiment = check_experiment({**table, "seeds": list(range(runs))}, "benchmark")
    grid, size = Grid(link, None, None), runs // blocks
    found: dict[str, list[float]] = {"jobs": [], "dask": []}
    for block in range(blocks):
        own = slice(block * size, (block + 1) * size)
        todo = cells(experiment, folder / "jobs")[own]
        found["jobs"].append(_per_run(todo, partial(play_in_processes, todo, 2, {"": 1}, None)))
        todo = cells(experiment, folder / "dask")[own]
        found["dask"].append(_per_run(todo, partial(grid.play, todo)))
    jobs, dask = (1000 * statistics.median(found[name]) for name in ("jobs", "dask"))
    return {"jobs_ms": round(jobs, 1), "dask_ms": round(dask, 1), "overhead_ms": round(dask - jobs, 1), "runs": runs}


def _per_run(todo: Sequence[Cell], play_them: Callable[[Watch], None]) -> float:
    """Seconds for each run, from the end of the first to the end of the last: without starting processes."""
    ends: list[float] = []
    play_them(lambda cell, line: ends.append(time.perf_counter()))
    return (ends[-1] - ends[0]) / (len(todo) - 1)
