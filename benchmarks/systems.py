"""The systems that need no peer: `python -m benchmarks.systems NAME WORKLOAD` enters one into a race.

Each is an iterator over its weights: the first are those it starts from, each further ones come after a round.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import torch
from torch import Tensor

from benchmarks.racer import Racer
from benchmarks.workloads import (
    CLASSES,
    DECAY,
    LR,
    MOMENTUM,
    WORKLOADS,
    Workload,
    cores,
    data_of,
    fit,
    model_of,
    optimizer_of,
)

Weights = list[Tensor]


def limit(workload: Workload) -> Iterator[Weights]:
    """The same SGD steps and nothing else: one model, one optimiser, the clients' batches one after the other."""
    model, data = model_of(workload), data_of(workload)
    optimizer = optimizer_of(model)
    while True:
        yield list(model.parameters())
        for x, y in data:
            fit(model, optimizer, x, y, workload.batch, workload.pad)


def naive(workload: Workload) -> Iterator[Weights]:
    """The loop that one writes first: a copy of the model per client, a mean of state_dicts."""
    model, data = model_of(workload), data_of(workload)
    total = sum(len(y) for _, y in data)
    while True:
        yield list(model.parameters())
        states = []
        for x, y in data:
            local = copy.deepcopy(model)
            fit(local, optimizer_of(local), x, y, workload.batch, workload.pad)
            states.append((len(y) / total, local.state_dict()))
        model.load_state_dict({name: sum(share * state[name] for share, state in states) for name in states[0][1]})


def fedpca(workload: Workload, name: str = "fedavg") -> Iterator[Weights]:
    """fedpca in this process, with as many workers as cores."""
    from fedpca.core import Server, Shard
    from fedpca.loop import play
    from fedpca.models.build import build
    from fedpca.models.flat import params_of
    from fedpca.runs.check import check_experiment, method_of
    from fedpca.simulate.clients import InProcess
    from fedpca.simulate.workers import Workers

    training: dict[str, object] = {"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY, "batch": workload.batch}
    training |= {"augment": f"crop-flip-{workload.pad}"} if workload.pad else {}
    table = {"model": {"name": workload.model}, "training": training, "method": {"fedpca-hs": {"warmup": 0}}}
    shards = {str(client): Shard(x, y) for client, (x, y) in enumerate(data_of(workload))}
    method = method_of(check_experiment(table, "benchmark"), name)
    nets = [build(workload.model, workload.shape, CLASSES, 0) for _ in range(cores())]
    nets[0].module.load_state_dict(model_of(workload).state_dict())
    start = Server(params_of(nets[0]))
    yield [start.params.weights]
    with closing(Workers(nets)) as workers:
        for server in play(method, InProcess(method, shards, workers, seed=0), start, rounds=100_000):
            yield [server.params.weights]


def fedpca_hs(workload: Workload) -> Iterator[Weights]:
    """The same with FedPCA (HS) and GSAM from the first round on."""
    return fedpca(workload, "fedpca-hs")


SYSTEMS = {"limit": limit, "naive": naive, "fedpca": fedpca, "fedpca-hs": fedpca_hs}


def main(name: str, workload: str) -> None:
    torch.manual_seed(0)
    rounds = SYSTEMS[name](WORKLOADS[workload])
    racer = Racer(next(rounds))
    for weights in rounds:
        if not racer.pause(partial(list, weights)):
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
