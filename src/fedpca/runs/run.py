"""The one place where data, method, clients, evaluation and record meet."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from fedpca.core import ClientId, Server
from fedpca.data.corrupt import check_corruption
from fedpca.data.datasets import Dataset, load
from fedpca.data.federation import Federation, federate
from fedpca.data.noise import check_noise
from fedpca.errors import RunError
from fedpca.loop import play
from fedpca.methods.build import base, compose
from fedpca.models.build import build
from fedpca.models.device import require_device
from fedpca.models.flat import layout_of, params_of
from fedpca.models.pretrained import weights_of
from fedpca.models.registry import check_model
from fedpca.runs import folder as record
from fedpca.runs.evaluate import evaluate, identification, weight_shares
from fedpca.runs.features import FEATURES, as_file, features_of
from fedpca.runs.folder import Line
from fedpca.runs.metrics import check_metric, shown_metrics
from fedpca.runs.scores import fairness_robustness, headline
from fedpca.settings.experiment import EvaluationSettings, Experiment, leaves, read_experiment, write_experiment
from fedpca.simulate.backbone import with_features
from fedpca.simulate.batched import SIZE, SMALL, can_team
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: one setting, one method, one seed, one folder."""

    settings: Experiment  # of this run alone, complete
    folder: Path
    setting: str = ""  # its name, where the experiment has several

    @property
    def method(self) -> str:
        """The method's name."""
        return self.settings.methods[0]

    @property
    def seed(self) -> int:
        """The seed of model and training."""
        return self.settings.seeds[0]

    @property
    def name(self) -> str:
        """What tells it from the experiment's other runs, in words."""
        return f"{self.setting}: " * bool(self.setting) + f"{self.method} seed {self.seed}"


Watch = Callable[[Cell, Line], None]  # told of every round
# settings that say nothing of the data; where in doubt one is not among them, and the data are made once more
APART = {"methods", "method", "seeds", "rounds", "participation", "checkpoint_every"}


def cells(experiment: Experiment, out: Path, setting: str = "") -> list[Cell]:
    """Every run of one setting, seed by seed, so that all methods have a result early."""
    return [
        Cell(experiment.cell(method, seed), out / setting / method.replace(":", "-") / f"seed-{seed}", setting)
        for seed in experiment.seeds
        for method in experiment.methods
    ]


def cells_of_all(settings: Mapping[str, Experiment], out: Path) -> list[Cell]:
    """Every run of every setting: seed by seed, so that all have a result early, then setting by setting.

    The methods of a setting follow one another, so that its federation is made once per seed.
    """
    every = [cell for name, experiment in settings.items() for cell in cells(experiment, out, name)]
    seeds = list(dict.fromkeys(cell.seed for cell in every))
    return sorted(every, key=lambda cell: seeds.index(cell.seed))


def is_done(cell: Cell) -> bool:
    """Whether the run has come to its end."""
    return (cell.folder / record.SUMMARY).exists()


def check_folder(cell: Cell, resume: bool) -> None:
    """Refuses a folder that holds other settings, or any run at all unless it is to be continued."""
    path = cell.folder / record.SETTINGS
    if not path.exists():
        return
    if not resume:
        raise RunError(f"{cell.folder} holds a run already: continue it with --resume, or choose another --out")
    if (stored := read_experiment(path)) != cell.settings:
        changed = ", ".join(_differences(stored, cell.settings))
        raise RunError(f"{cell.folder} was begun with other settings ({changed}): choose another --out")


def prepare(
    experiment: Experiment, data_dir: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> tuple[Dataset, Federation]:
    """The experiment's data, the same for every cell."""
    check_metric(experiment.evaluation.accuracy)
    check_model(experiment.model)
    check_corruption(experiment.rare)
    check_noise(experiment.noise)
    require_device(experiment.device)
    weights_of(experiment.model, progress)  # now: the wrong file is better refused before an hour of decoding
    dataset = load(experiment.data, data_dir, progress=progress)
    return dataset, with_features(federate(experiment, dataset), experiment.model, experiment.device, progress)


@dataclass
class Prepared:
    """The data of the cell that asked last, kept as long as the next one needs the same."""

    data_dir: Path | None = None
    kept: dict[str, tuple[Dataset, Federation]] = field(default_factory=dict)  # one at most

    def of(self, cell: Cell, progress: Callable[[int, int], None] | None = None) -> tuple[Dataset, Federation]:
        """The cell's dataset and federation."""
        key = cell.settings.model_dump_json(exclude=APART)
        if key not in self.kept:
            self.kept.clear()  # first: two might not fit into memory
            self.kept[key] = prepare(cell.settings, self.data_dir, progress)
        return self.kept[key]


def default_workers(experiment: Experiment, federation: Federation, jobs: int = 1) -> int:
    """As many as each job has cores, but no more than clients; one for models whose passes draw random numbers."""
    if experiment.device != "cpu":
        return 1  # it does many things at a time by itself
    probe = build(experiment.model.name, federation.shape, len(federation.classes), 0)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if probe.draws else max(1, min(cores // jobs, len(federation.shards)))


def plan(experiment: Experiment, federation: Federation, jobs: int, workers: int) -> str:
    """How the work will be done, in words: what was chosen for this model and machine."""
    net = build(experiment.model.name, federation.shape, len(federation.classes), 0)
    runs = f"{jobs} runs at a time, each with " if jobs > 1 else ""
    threads = f"{workers} worker{'s' * (workers > 1)} of one thread"
    threads += f", models on {experiment.device}" if experiment.device != "cpu" else ""
    if not can_team(net, base(experiment).train):
        return f"{runs}{threads}, a client at a time each"
    where = f"; small enough for one of the {workers}" if workers > 1 and len(net.weights) <= SMALL else ""
    return f"{runs}{threads}, {min(SIZE, len(federation.shards))} clients together where the method allows it{where}"


def run_cell(cell: Cell, dataset: Dataset, federation: Federation, workers: int, watch: Watch) -> None:
    """Plays a cell to its end, from its checkpoint if it has one, and leaves a complete run folder."""
    with record.locked(cell.folder), _workers(cell, federation, workers) as crew:
        if is_done(cell):  # by another process, between the look and the lock
            return
        clients = InProcess(compose(cell.method, cell.settings), federation.shards, crew, cell.seed)
        server = start = _begin(cell, dataset, federation, clients, Server(params_of(crew.nets[0])))
        before = time.perf_counter()
        for server in play(clients.method, clients, start, cell.settings.rounds):
            line = _line(cell, server, federation, crew)
            record.append_round(cell.folder, {**line, "seconds": round(time.perf_counter() - before, 4)})
            if server.round % cell.settings.checkpoint_every == 0:
                record.save_checkpoint(cell.folder, server, clients.memory)
            watch(cell, line)
            before = time.perf_counter()
        record.save_final(cell.folder, layout_of(crew.nets[0].module).named(server.params))
        if most := cell.settings.evaluation.features:
            seen = features_of(crew, server.params, federation.shards, most, cell.seed)
            record.write_whole(cell.folder / FEATURES, as_file(seen))
        record.write_json(cell.folder / record.SUMMARY, summary(cell))
        shutil.rmtree(cell.folder / "checkpoint", ignore_errors=True)


@contextmanager
def _workers(cell: Cell, federation: Federation, count: int) -> Iterator[Workers]:
    model, classes = cell.settings.model, len(federation.classes)
    place = (federation.shape, classes, cell.seed, weights_of(model), cell.settings.device)
    crew = Workers([build(model.name, *place) for _ in range(count)])
    try:
        yield crew
    finally:
        crew.close()


def _begin(cell: Cell, dataset: Dataset, federation: Federation, clients: InProcess, fresh: Server) -> Server:
    """The server to go on from: that of the checkpoint, else a fresh one with the folder's first files written."""
    if (cell.folder / record.CHECKPOINT).exists():
        server, memory = record.load_checkpoint(cell.folder)
        record.keep_rounds(cell.folder, server.round)
        clients.memory.update(memory)
        return server
    named = {"setting": cell.setting} if cell.setting else {}
    record.write_json(cell.folder / record.ABOUT, {**named, **about(dataset, federation)})
    record.write_whole(cell.folder / record.ROUNDS, "")
    record.write_whole(cell.folder / record.SETTINGS, write_experiment(cell.settings))
    return fresh


def about(dataset: Dataset, federation: Federation) -> dict[str, object]:
    """What the run works on and with: the clients and the truth about them, test groups, skipped images, versions."""
    truth = federation.truth
    wrong = {
        client: int((shard.y != truth.labels[client]).sum()) for client, shard in federation.shards.items()
    }  # labels that differ from the true ones
    return {
        "dataset": dataset.name,
        "classes": list(federation.classes),
        "shape": list(federation.shape),
        "clients": {
            "id": list(federation.shards),
            "size": [len(shard.y) for shard in federation.shards.values()],
            "wrong_labels": list(wrong.values()),
        },
        "rare": list(truth.rare),
        "mislabeled": list(truth.mislabeled),
        "test_images": {group: len(test.y) for group, test in federation.tests.items()},
        "skipped_images": list(dataset.skipped),
        "versions": record.versions(),
    }


def _line(cell: Cell, server: Server, federation: Federation, crew: Workers) -> Line:
    """One round as it is recorded, but for the time it took."""
    settings = cell.settings.evaluation
    due = server.round % settings.every == 0 or server.round > cell.settings.rounds - settings.last_rounds
    return {
        "round": server.round,
        "groups": evaluate(crew, server.params, federation.tests, settings.accuracy) if due else None,
        "clients": client_lists(server, list(federation.shards)),
        "identification": identification(server.diagnosis, federation.truth),
        "weights": weight_shares(server.weights, federation.truth),
        "left_out": dict(server.left_out),
    }


def client_lists(server: Server, ids: list[ClientId]) -> dict[str, list[object] | None]:
    """What is known of each client, as parallel lists; a column of which nothing is known is null."""
    verdicts = [server.diagnosis.get(client) for client in ids]
    columns: dict[str, list[object]] = {
        "loss": [_number(verdict.report.get("loss")) if verdict else None for verdict in verdicts],
        "dispersion": [_number(verdict.report.get("dispersion")) if verdict else None for verdict in verdicts],
        "group": [verdict.group if verdict else None for verdict in verdicts],
        "suspicion": [_number(verdict.suspicion) if verdict else None for verdict in verdicts],
        "weight": [server.weights.get(client, 0.0) if server.weights else None for client in ids],
    }
    known = {name: values if any(value is not None for value in values) else None for name, values in columns.items()}
    return {"id": list(ids), **known}


def summary_metrics(accuracy: str) -> list[str]:
    """What a summary holds: what is shown by default, then the chosen accuracy if it is another."""
    default = EvaluationSettings().accuracy
    return list(dict.fromkeys((*shown_metrics(default), *shown_metrics(accuracy))))


def summary(cell: Cell) -> dict[str, object]:
    """The run's figures over its last rounds, read back from its own record."""
    lines = [json.loads(text) for text in (cell.folder / record.ROUNDS).read_text(encoding="utf-8").splitlines()]
    last = [line["groups"] for line in lines[-cell.settings.evaluation.last_rounds :]]
    metrics = summary_metrics(cell.settings.evaluation.accuracy)
    names = {metric: headline({g: [line[g][metric] for line in last] for g in last[0]}) for metric in metrics}
    shares = [line["weights"] for line in lines]
    return {
        "method": cell.method,
        "seed": cell.seed,
        "rounds": len(lines),
        **{
            metric: {"worst": figures.worst.mean, "average": figures.average.mean, "std": figures.std.mean}
            for metric, figures in names.items()
        },
        "rare_weight_times_not_mislabeled": fairness_robustness(shares) if all(shares) else None,
        "seconds": round(sum(line["seconds"] for line in lines), 2),
    }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def _differences(stored: Experiment, wanted: Experiment) -> Iterator[str]:
    """Each changed key with both values, old first."""
    old, new = leaves(stored.model_dump(mode="json")), leaves(wanted.model_dump(mode="json"))
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            yield f"{key} was {old.get(key)!r}, is now {new.get(key)!r}"
