"""What one liar gains: `python -m studies.liar [--clients 20] [--seeds 3]` prints the tables of docs/threats.md.

Digits, a small network, 40 rounds; the liar lies from round 11 on. A cell is accuracy % / backdoor success % / the
liar's mean weight, the mean over seeds. Bounds are those of a deployment that sets nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isnan
from statistics import fmean

import torch
from torch import Tensor

from fedpca.core import ClientId, Failure, Order, Params, Report, Server, Shard, Update
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import check_experiment, method_of
from fedpca.runs.evaluate import probabilities
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from fedpca.sites.settings import BOUNDS

LIAR, SINCE, ROUNDS, TARGET = "1", 11, 40, 0
METHODS = ("fedavg", "fedpca-d", "fedpca-hs-auto", "fedpca", "median", "rfa")
RULES: Mapping[str, dict[str, object]] = {
    "no bounds": {},
    "bounds": {**BOUNDS},
    "bounds and rule = median": {**BOUNDS, "rule": "median"},
    "bounds and rule = trimmed-mean": {**BOUNDS, "rule": "trimmed-mean"},
}
Forge = Callable[[Params, Update], Update]


def stepping(factor: float) -> Forge:
    """Sends so many times its step."""

    def forge(start: Params, update: Update) -> Update:
        if update.params is None:
            return update
        weights = start.weights + factor * (update.params.weights - start.weights)
        return replace(update, params=replace(update.params, weights=weights))

    return forge


def noise(start: Params, update: Update) -> Update:
    """Sends random weights, ten times as large as the model's."""
    drawn = torch.randn(start.weights.shape, generator=torch.Generator().manual_seed(0))
    weights = 10 * drawn * start.weights.std()
    return replace(update, params=replace(update.params or start, weights=weights), size=max(1, update.size))


def claiming(size: int) -> Forge:
    """Says that it trained on so many samples."""
    return lambda start, update: replace(update, size=size) if update.params is not None else update


@dataclass(frozen=True)
class Attack:
    """What the liar says and sends in place of the truth."""

    name: str
    lies: Report
    forge: Forge | None = None
    backdoor: bool = False


ATTACKS = (
    Attack("none", {}),
    Attack("backdoor", {}, backdoor=True),
    Attack("backdoor, size 10**12", {}, claiming(10**12), backdoor=True),
    Attack("backdoor, lowest dispersion", {"dispersion": -27.6}, backdoor=True),
    Attack("backdoor, step x 20", {}, stepping(20.0), backdoor=True),
    Attack("random weights x 10", {}, noise),
    Attack("reversed step x 20", {}, stepping(-20.0)),
    Attack("loss 1e6", {"loss": 1e6}),
)


@dataclass
class Lying:
    """The clients, one of whom lies."""

    clients: InProcess
    attack: Attack

    @property
    def ids(self) -> list[ClientId]:
        return list(self.clients.ids)

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        return self.clients.sizes

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report | Failure]]:
        for client, report in self.clients.report(params, orders):
            lies = client == LIAR and orders[client].round >= SINCE and not isinstance(report, Failure)
            yield client, {**report, **_asked(self.attack.lies, report)} if lies else report  # type: ignore[dict-item]

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update | Failure]]:
        for client, update in self.clients.train(params, orders):
            lies = client == LIAR and orders[client].round >= SINCE and self.attack.forge
            yield client, lies(params, update) if lies and not isinstance(update, Failure) else update


def _asked(lies: Report, report: Report | Failure) -> Report:
    return {key: value for key, value in lies.items() if not isinstance(report, Failure) and key in report}


def triggered(images: Tensor) -> Tensor:
    """The images with a mark in a corner."""
    marked = images.clone()
    marked[..., :2, :2] = 255 if marked.dtype == torch.uint8 else marked.max()
    return marked


def poisoned(shard: Shard) -> Shard:
    """Half of the images with the mark, called the target class."""
    images, labels = shard.x[torch.arange(len(shard.y))].clone(), shard.y.clone()
    images[::2], labels[::2] = triggered(images[::2]), TARGET
    return Shard(images, labels)


def experiment_of(method: str, clients: int, bounds: Mapping[str, object]) -> Experiment:
    """The run without its liar."""
    table = {
        "rounds": ROUNDS,
        "seeds": [0],
        "methods": [method],
        "data": {"clients": clients, "split": "dirichlet", "alpha": 2.0},
        "model": {"name": "mlp"},
        "training": {"batch": 32, "lr": 0.05},
        "aggregation": dict(bounds),
    }
    return check_experiment(table, "liar")


def cell(method: str, attack: Attack, bounds: Mapping[str, object], clients: int, seed: int) -> tuple[float, ...]:
    """Accuracy, backdoor success and the liar's mean weight."""
    experiment = experiment_of(method, clients, bounds)
    federation: Federation = federate(experiment, load(experiment.data))
    shards = dict(federation.shards)
    if attack.backdoor:
        shards[LIAR] = poisoned(shards[LIAR])
    crew = Workers([build("mlp", federation.shape, len(federation.classes), seed=seed)])
    made = method_of(experiment)
    crowd = Lying(InProcess(made, shards, crew, seed=seed), attack)
    servers = list(play(made, crowd, Server(params_of(crew.nets[0])), ROUNDS))
    weights = [own.weights.get(LIAR, 0.0) for own in servers[SINCE - 1 :] if own.weights is not None]
    params = servers[-1].params
    (test,) = federation.tests.values()
    images = test.x[torch.arange(len(test.y))]
    said = torch.from_numpy(probabilities(crew, params, test)).argmax(dim=1)
    marked = torch.from_numpy(probabilities(crew, params, Shard(triggered(images), test.y))).argmax(dim=1)
    others = test.y != TARGET
    share = fmean(weights) if weights else float("nan")
    return (said == test.y).double().mean().item(), (marked[others] == TARGET).double().mean().item(), share


def row(method: str, attack: Attack, bounds: Mapping[str, object], clients: int, seeds: int) -> str:
    """A cell of the table."""
    cells = [cell(method, attack, bounds, clients, seed) for seed in range(seeds)]
    accuracy, success, weight = (fmean(column) for column in zip(*cells, strict=True))
    return f"{100 * accuracy:.0f}/{100 * success:.0f}" + ("" if isnan(weight) else f"/{weight:.2f}")


def main() -> None:
    """Prints a table for each kind of bounds."""
    parser = argparse.ArgumentParser(prog="python -m studies.liar")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, bounds in RULES.items():
        print(f"\n{name}, one liar of {given.clients}\n\n| attack | {' | '.join(METHODS)} |")
        print("|---" * (len(METHODS) + 1) + "|", flush=True)
        for attack in ATTACKS:
            cells = [row(method, attack, bounds, given.clients, given.seeds) for method in METHODS]
            print(f"| {attack.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
