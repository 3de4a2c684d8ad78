"""What a run would cost, found by a short trial that leaves nothing behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from fedpca.core import ClientId, Server, Shard
from fedpca.data.federation import Federation
from fedpca.loop import play
from fedpca.methods.base import base, one_stage
from fedpca.models.build import build_model
from fedpca.models.flat import params_of
from fedpca.models.pretrained import weights_of
from fedpca.models.registry import is_shipped
from fedpca.models.user_code import is_users_error, trying
from fedpca.parts.client.report import BATCH
from fedpca.runs.cell import is_tested
from fedpca.runs.check import plan_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

ENOUGH = 1.0  # seconds, after which a trial says enough about a round
GROWTH = 4  # of the next trial, where one was too short


@dataclass(frozen=True)
class Trial:
    """What a run of FedAvg would cost."""

    weights: int  # of the model, those that are trained
    seconds: float  # a round, with its share of the tests
    memory: int | None  # bytes: the most that this process has used, with all data; None where that is not known


def try_out(experiment: Experiment, federation: Federation, workers: int) -> Trial:
    """Trains and tests on a few batches, and says what a whole round would take."""
    place = federation.shape, len(federation.classes), experiment.seeds[0], weights_of(experiment.model)
    pool = Workers([build_model(experiment.model, *place, experiment.device) for _ in range(workers)])
    try:
        tested = sum(is_tested(experiment, round) for round in range(1, experiment.rounds + 1)) / experiment.rounds
        with trying("a short trial", partial(is_users_error, own_model=not is_shipped(experiment.model.name))):
            seconds = _training_seconds(experiment, federation, pool) + tested * _test_seconds(federation, pool)
        return Trial(len(pool.nets[0].weights), seconds, peak_memory())
    finally:
        pool.close()


def _training_seconds(experiment: Experiment, federation: Federation, pool: Workers) -> float:
    """Of a FedAvg round, from one with some of the images; more and more of them, until it takes long enough."""
    method = one_stage(base(replace(plan_of(experiment), participation=1.0)))
    start, budget = Server(params_of(pool.nets[0])), experiment.training.batch
    total, is_first = sum(len(shard.y) for shard in federation.shards.values()), True
    while True:
        shards = _some(federation.shards, budget)
        clients, before = InProcess(method, shards, pool, experiment.seeds[0]), time.perf_counter()
        next(iter(play(method, clients, start, 1)))
        seconds, done = time.perf_counter() - before, sum(len(shard.y) for shard in shards.values())
        if not is_first and (seconds >= ENOUGH or budget >= total):
            return experiment.participation * seconds * total / done
        budget, is_first = budget if is_first else budget * GROWTH, False  # what the first one loads is not counted


def _some(shards: Mapping[ClientId, Shard], budget: int) -> dict[ClientId, Shard]:
    """The first clients that hold so many images, the last of them cut short; two are needed by batch norm."""
    some: dict[ClientId, Shard] = {}
    for client, shard in shards.items():
        count = min(len(shard.y), budget)
        if count < 2:
            break
        some[client] = Shard(shard.x[torch.arange(count)], shard.y[:count])
        budget -= count
    return some


@torch.no_grad()
def _test_seconds(federation: Federation, pool: Workers) -> float:
    """Of a test of all groups, from one batch."""
    images = next(iter(federation.tests.values())).x
    batch = images[torch.arange(min(BATCH, len(images)))]
    pool.nets[0](batch[:2])
    before = time.perf_counter()
    pool.nets[0](batch)
    seconds = (time.perf_counter() - before) / len(batch)
    return seconds * sum(len(test.y) for test in federation.tests.values()) / len(pool.nets)


def peak_memory() -> int | None:
    """The most memory that this process has used, in bytes; None on systems that do not say."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return None
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
