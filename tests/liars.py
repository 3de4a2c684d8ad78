"""Clients of which one forges its answers, for the tests of what one liar can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from fedpca.core import Failure, Order, Params, Report, Server, Update
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import check_experiment, method_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

LIAR = "1"
Forge = Callable[[Params, Update], Update]  # the global state, the honest update -> what is sent


def honest(params: Params, update: Update) -> Update:
    return update


@dataclass
class WithLiar:
    """Clients of which one changes its report, its report after training, and its update."""

    clients: InProcess
    lies: Report
    forge: Forge = honest
    since: int = 1  # the first round in which it lies

    @property
    def ids(self) -> list[str]:
        return list(self.clients.ids)

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.clients.sizes

    def report(self, params: Params, orders: Mapping[str, Order]) -> Iterator[tuple[str, Report | Failure]]:
        for client, report in self.clients.report(params, orders):
            lies = client == LIAR and orders[client].round >= self.since
            yield client, {**report, **self.lies} if lies else report

    def train(self, params: Params, orders: Mapping[str, Order]) -> Iterator[tuple[str, Update | Failure]]:
        for client, update in self.clients.train(params, orders):
            lies = client == LIAR and orders[client].round >= self.since
            forged = replace(update, report={**update.report, **self.lies})
            yield client, self.forge(params, forged) if lies else update


@cache
def world(clients: int = 4, rounds: int = 4) -> tuple[Experiment, Federation]:
    """Some clients with right labels and digits of every class."""
    table = {
        "rounds": rounds,
        "seeds": [0],
        "data": {"clients": clients, "train_images": 60 * clients, "test_images": 200},
        "model": {"name": "mlp"},
        "training": {"batch": 16, "lr": 0.1},
    }
    experiment = check_experiment(table, "liars")
    return experiment, federate(experiment, load(experiment.data))


def played(
    name: str, lies: Report | None = None, forge: Forge = honest, clients: int = 4, **changes: object
) -> list[Server]:
    """The server after each round; `changes` are tables of the experiment."""
    experiment, federation = world(clients)
    table = experiment.model_dump(mode="json", exclude_none=True) | {"methods": [name]} | changes
    method = method_of(check_experiment(table, "liars"), name)
    crew = Workers([build("mlp", federation.shape, len(federation.classes), seed=0)])
    crowd = WithLiar(InProcess(method, federation.shards, crew, seed=0), lies or {}, forge)
    return list(play(method, crowd, Server(params_of(crew.nets[0])), experiment.rounds))
