"""What the paper's table on CIFAR-10 would take: CPU seconds of a few clients, and the product on paper."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import torch

from benchmarks.workers import shards_of
from benchmarks.workloads import WORKLOADS
from fedpca.core import Method, Server, Stage
from fedpca.loop import play_round
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import method_of, read_settings
from fedpca.runs.evaluate import probabilities
from fedpca.settings.experiment import Experiment
from fedpca.settings.shipped import shipped_experiments
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

NAME = "paper/cifar10"
CLIENTS, IMAGES = 2, 64  # one batch each
METHODS = "fedavg", "fedpca-hs"  # the cheapest, and one of the dearest
TRAINED, TESTED = 50_000, 20_000  # images of a round; of the common and of the rare test group
HOUR = 3600
SHAPE = WORKLOADS["W2"].shape


def measure() -> dict[str, object]:
    """CPU seconds of 1,000 images and of a round; core hours of the table if every method took as long as this one."""
    settings = read_settings(shipped_experiments()[NAME])
    experiment = next(iter(settings.values()))
    runs = len(experiment.methods) * len(experiment.seeds) * len(settings)
    torch.set_num_threads(1)
    with closing(Workers([build(experiment.model.name, SHAPE, 10, 0)])) as workers:
        found = {name: _seconds(partial(_play, experiment, name, workers)) for name in METHODS}
        tested = _seconds(lambda: _test(workers))
    per_round = {name: (TRAINED * own + TESTED * tested) / 1000 for name, own in found.items()}
    hours = {name: round(own * experiment.rounds * runs / HOUR) for name, own in per_round.items()}
    return {
        "seconds_per_1000_images": {name: round(own, 1) for name, own in {**found, "a test": tested}.items()},
        "seconds_per_round": {name: round(own) for name, own in per_round.items()},
        "runs": runs,
        "core_hours": hours,
    }


def _play(experiment: Experiment, name: str, workers: Workers) -> None:
    """A round of clients with one batch each, in the method's last stage."""
    recipe = method_of(experiment, name).stages[-1].recipe
    clients = InProcess(Method(name, (Stage(recipe),)), shards_of(SHAPE, CLIENTS, IMAGES), workers, seed=0)
    play_round(recipe, clients, Server(params_of(workers.nets[0])), rounds=experiment.rounds)


def _test(workers: Workers) -> None:
    probabilities(workers, params_of(workers.nets[0]), shards_of(SHAPE, 1, CLIENTS * IMAGES)["0"])


def _seconds(work: Callable[[], None]) -> float:
    """CPU seconds of this process for 1,000 images, the shorter of two times: others on the machine matter less."""
    times = []
    for _ in range(2):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times) * 1000 / (CLIENTS * IMAGES)
