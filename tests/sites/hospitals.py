"""A table of four hospitals, whole for a simulation and in a folder for each site; what a simulation makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedpca import InProcess, Workers, federate, load, params_of, play
from fedpca.core import Server
from fedpca.data.federation import Federation
from fedpca.models.build import build
from fedpca.models.flat import layout_of
from fedpca.runs.check import check_experiment, method_of
from fedpca.settings.experiment import Experiment
from fedpca.sites.settings import BOUNDS
from tests.data.test_number_tables import write_csv

NAMES = ("berlin", "bonn", "dresden", "essen")
HEADER = ["center", "age", "pain", "ca", "label"]
SHORT = {"rounds": 6, "model": {"name": "mlp"}, "training": {"batch": 16}, "method": {"fedpca-hs-auto": {"warmup": 2}}}


def hospital_rows(name: str, count: int) -> list[list[object]]:
    """The label follows the age; texts of `pain` differ between hospitals; essen never measured `ca`."""
    rng = np.random.default_rng(NAMES.index(name))
    pains = ("none", "typical", "?") if name != "bonn" else ("none", "sharp")
    rows = []
    for _ in range(count):
        age = round(float(rng.normal(50 + 5 * NAMES.index(name), 11)), 2)
        ca: object = "" if name == "essen" or rng.random() < 0.1 else round(float(rng.normal()), 3)
        rows.append([name, age, str(rng.choice(pains)), ca, int(age + rng.normal(0, 3) > 55)])
    return rows


def write_hospitals(folder: Path, names: Sequence[str] = NAMES) -> None:
    """`all` has everybody's rows in turn; each hospital's folder has its own, without the column of the centers.

    `names` are what the four are called in place of their own.
    """
    sizes = dict(zip(NAMES, (46, 40, 52, 44), strict=True))
    for part, factor in (("train", 1), ("test", 0.5)):
        rows = [hospital_rows(name, int(factor * count)) for name, count in sizes.items()]
        named = [[[name, *row[1:]] for row in own] for name, own in zip(names, rows, strict=True)]
        mixed = [own[turn] for turn in range(max(sizes.values())) for own in named if turn < len(own)]
        write_csv(folder / "all" / f"{part}.csv", mixed, HEADER)
        for name, own in zip(names, rows, strict=True):
            write_csv(folder / name / f"{part}.csv", [row[1:] for row in own], HEADER[1:])


def write_parts(folder: Path, rows: list[list[str]], header: list[str]) -> None:
    """The same of a table whose first column is the center: every fifth row is to test on."""
    for part in ("train", "test"):
        own = [row for number, row in enumerate(rows) if (number % 5 == 4) == (part == "test")]
        write_csv(folder / "all" / f"{part}.csv", own, header)
        for center in {row[0] for row in own}:
            write_csv(folder / center / f"{part}.csv", [row for row in own if row[0] == center], header)


def simulated(folder: Path, method: str) -> tuple[dict[str, torch.Tensor], Federation]:
    """The final weights of a simulation of these hospitals within a deployment's bounds, and its federation."""
    data = {"dataset": str(folder / "all"), "split": "column", "column": "center"}
    table = {**short(method), "methods": [method], "seeds": [0], "data": data, "aggregation": BOUNDS}
    experiment = check_experiment(table, "simulation")
    federation = federate(experiment, load(experiment.data))
    return played(experiment, federation), federation


def played(experiment: Experiment, federation: Federation) -> dict[str, torch.Tensor]:
    workers = Workers([build("mlp", federation.shape, len(federation.classes), experiment.seeds[0])])
    method = method_of(experiment)
    clients = InProcess(method, federation.shards, workers, experiment.seeds[0], batched=False)
    *_, server = play(method, clients, Server(params_of(workers.nets[0])), experiment.rounds)
    return layout_of(workers.nets[0].module).named(server.params)


def short(method: str) -> dict[str, object]:
    """Settings of a short run of a method."""
    own = {name: table for name, table in SHORT["method"].items() if name == method}
    return {**SHORT, "method": own}
