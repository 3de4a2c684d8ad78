"""In place of Flower's own strategies: any fedpca method, with their calling convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from statistics import fmean
from uuid import uuid4

import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedpca.core import ClientId, Server
from fedpca.errors import SettingsError, UserError, nearest
from fedpca.flower.engine import FlowerEngine
from fedpca.methods.define import Plan
from fedpca.models.flat import Layout, Slot
from fedpca.runs.check import check_method, complete_tables
from fedpca.settings.experiment import AggregationSettings, EvaluationSettings, TrainingSettings
from fedpca.settings.toml import validate
from fedpca.sites.clients import SiteClients
from fedpca.sites.roster import Log, Roster
from fedpca.sites.run import meet, play_with_quorum
from fedpca.sites.session import Session
from fedpca.sites.settings import BOUNDS, Deployment
from fedpca.sites.task import Task

TRAIN_CONFIG = {  # Flower's usual keys, and ours
    "lr": "lr",
    "local-epochs": "epochs",
    "batch-size": "batch",
    "momentum": "momentum",
    "weight-decay": "weight_decay",
}
RUNNING = (".running_mean", ".running_var")  # PyTorch's names of what batch norm counts, which is never stepped

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass(frozen=True)
class FedPCA:
    """A strategy whose clients are `fedpca_client(load_data, build_model)`.

    `settings` are those of the method (`fedpca list methods NAME`), `training` those of docs/settings.md.
    """

    method: str = "fedpca"
    settings: Mapping[str, object] = field(default_factory=dict)
    training: Mapping[str, object] = field(default_factory=dict)
    aggregation: Mapping[str, object] = field(default_factory=dict)  # bounds that differ from a deployment's
    seed: int = 0
    accuracy: str = EvaluationSettings().accuracy  # the metric of the sites' own tests besides the recorded ones
    deployment: Deployment = field(default_factory=Deployment)
    log: Log = print

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Plays the rounds; `timeout` is the deadline of each exchange.

        Of the result, `train_metrics_clientapp` has what is known of each site, `evaluate_metrics_clientapp` mean and
        worst of the sites' own tests.
        """
        if evaluate_config:
            raise UserError("evaluate_config: there is nothing to set; sites test the model on what load_data gives")
        torch.set_num_threads(1)
        task = self.task(num_rounds, train_config or ConfigRecord())
        deployment = self.deployment.model_copy(update={"deadline": timeout})
        layout = layout_from(initial_arrays)
        tensors = {name: torch.from_numpy(array.numpy()) for name, array in initial_arrays.items()}
        roster = Roster(FlowerEngine(grid), Session(uuid4().hex, task, deployment), self.log)
        clients = SiteClients(roster, meet(roster), layout, lambda round: round > 0)
        start = server = Server(layout.params(tensors))
        result = Result(arrays=initial_arrays)
        _test(result, evaluate_fn, 0)
        for server in play_with_quorum(clients, start):
            result.arrays = ArrayRecord(layout.named(server.params))
            result.train_metrics_clientapp[server.round] = metrics_of(server)
            _note(result, server.round - 1, clients.evaluations)
            _test(result, evaluate_fn, server.round)
            self.log(f"round {server.round}/{num_rounds}")
        clients.evaluate(server.params, num_rounds)
        _note(result, num_rounds, clients.evaluations)
        return result

    def task(self, rounds: int, train_config: ConfigRecord) -> Task:
        """What the sites do, as this strategy and Flower's arguments say."""
        training = dict(self.training)
        for key, value in train_config.items():
            if key not in TRAIN_CONFIG:
                raise SettingsError(f"train_config: unknown key {key!r}{nearest(key, TRAIN_CONFIG)}")
            training[TRAIN_CONFIG[key]] = value
        tables = {self.method: dict(self.settings)}
        check_method(self.method, tables, rounds, "FedPCA")
        settings = validate(TrainingSettings, training, "FedPCA", ("training",))
        bounds = validate(AggregationSettings, {**BOUNDS, **self.aggregation}, "FedPCA", ("aggregation",))
        plan = Plan(rounds, settings, seed=self.seed, clients=self.deployment.sites, aggregation=bounds)
        tables = complete_tables(self.method, tables)
        return Task(method=self.method, tables=tables, plan=plan, accuracy=self.accuracy)


def layout_from(arrays: ArrayRecord) -> Layout:
    """Which arrays are weights, batch norm's running means, and counters."""
    slots: dict[str, list[Slot]] = {"weights": [], "buffers": [], "counters": []}
    for name, array in arrays.items():
        kind = "buffers" if name.endswith(RUNNING) else "weights" if array.dtype.startswith("float") else "counters"
        start = sum(prod(slot.shape) for slot in slots[kind])
        slots[kind].append(Slot(name, tuple(array.shape), start))
    return Layout(**{kind: tuple(own) for kind, own in slots.items()})


def metrics_of(server: Server) -> MetricRecord:
    """The latest loss, dispersion, suspicion and weight of each site as `SITE/NAME`, and whether it is `mislabeled`.

    Where shares of wrong labels are estimated, also the suspicion's interval and whether it `cannot_tell`.
    """
    known: dict[str, float] = {}
    for site, verdict in server.diagnosis.items():
        numbers = {name: verdict.report.get(name) for name in ("loss", "dispersion")}
        numbers |= {"suspicion": verdict.suspicion, "weight": (server.weights or {}).get(site)}
        if made := verdict.estimate:
            numbers |= {"suspicion_low": made.low, "suspicion_high": made.high}
            numbers["cannot_tell"] = float(made.answer == "cannot tell")
        numbers["mislabeled"] = None if verdict.group is None else float(verdict.group == "mislabeled")
        known |= {f"{site}/{name}": value for name, value in numbers.items() if isinstance(value, float)}
    return MetricRecord(dict(known))


def _note(result: Result, round: int, evaluations: Mapping[ClientId, Mapping[str, float]]) -> None:
    """Mean and worst over the sites' own tests of the model after a round."""
    if not evaluations or round < 1:
        return
    metrics = {name: [own[name] for own in evaluations.values()] for name in next(iter(evaluations.values()))}
    worst = {f"worst-{name}": min(values) for name, values in metrics.items()}
    result.evaluate_metrics_clientapp[round] = MetricRecord({**{n: fmean(v) for n, v in metrics.items()}, **worst})


def _test(result: Result, evaluate_fn: EvaluateFn | None, round: int) -> None:
    """The user's own test of the model, on the server."""
    if evaluate_fn and (metrics := evaluate_fn(round, result.arrays)) is not None:
        result.evaluate_metrics_serverapp[round] = metrics
