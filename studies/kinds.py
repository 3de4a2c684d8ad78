"""Federations of many kinds, on which rules of identification are judged: what each is like, as settings.

Every kind is played with nobody mislabeled and with every kind of label noise, with and without rare clients. A draw is
a number for the data's seed: decisions were made on draws below 100, and what is published is of draws from 100 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

from fedpca.data.corrupt import CORRUPTIONS
from fedpca.data.datasets import digits
from fedpca.runs.check import check_experiment
from fedpca.settings.base import Table
from fedpca.settings.experiment import Experiment

ROUNDS, SEARCH, HELD_OUT = 25, (0,), (100, 101)
FEATURES = {"name": "mlp-16", "backbone": "efficientnet-lite0", "backbone_size": 72}
HEART: Table = {"dataset": "heart-disease"}
TABLE: tuple[Table, float, float] = ({"name": "mlp"}, 0.03, 0.0)  # model, lr, nobody rare: corruptions are for images
TWO_CLASSES = {"two-halves": (0,) * 5 + (1,) * 5, "two-tenth": (1,) + (0,) * 9}  # of digits: what each becomes


@dataclass(frozen=True)
class Kind:
    """Data, their split and the model that is trained on them."""

    name: str
    data: Table
    model: Table
    lr: float = 0.05
    rare: float = 0.2  # share of the clients, where some are rare
    severities: tuple[int, ...] = (3, 4, 5)
    colour: bool = False  # of its images: grey ones have no saturation
    two_classes: bool = False  # then a majority whose labels are all wrong is right, for all that anybody can tell

    @property
    def family(self) -> str:
        """What is published together: the name up to a comma."""
        return self.name.partition(",")[0]


def _kind(name: str, dataset: str, clients: int, model: str = "mlp", images: int | None = None, **more: object) -> Kind:
    data: Table = {"dataset": dataset, "clients": clients, **({"train_images": images} if images else {}), **more}
    lr = 0.02 if dataset == "fashion-mnist" else 0.05  # the largest at which it learns under skewed classes
    return Kind(name, data, {"name": model}, lr, two_classes=dataset in TWO_CLASSES)


KINDS: tuple[Kind, ...] = (
    _kind("ten classes, digits, 20 clients", "digits", 20),
    _kind("ten classes, digits, 10 clients", "digits", 10),
    _kind("ten classes, Fashion-MNIST, 50 clients", "fashion-mnist", 50, images=5000),
    _kind("two classes, halves of the digits, 20 clients", "two-halves", 20),
    _kind("two classes, halves of the digits, 8 clients", "two-halves", 8),
    _kind("two classes with 10 % positives, 20 clients", "two-tenth", 20),
    _kind("two classes with 10 % positives, 10 clients", "two-tenth", 10),
    *(
        _kind(
            f"skewed classes, {data}, Dirichlet {alpha}",
            data,
            20,
            images=images,
            split="dirichlet",
            alpha=alpha,
            min_images=10,
        )
        for data, images in (("digits", None), ("fashion-mnist", 5000))
        for alpha in (0.1, 0.3, 1.0)
    ),
    _kind("few clients, digits, 4", "digits", 4),
    _kind("few clients, Fashion-MNIST, 5 of 2000 images", "fashion-mnist", 5, images=10000),
    _kind("small clients, digits, 95 of 15 images", "digits", 95),
    _kind("small clients, Fashion-MNIST, 100 of 50 images", "fashion-mnist", 100, images=5000),
    _kind("convolutions, digits, 20 clients", "digits", 20, model="cnn-small"),
    Kind(
        "frozen features, CIFAR-10",
        {"dataset": "cifar10", "clients": 20, "train_images": 5000},
        FEATURES,
        0.03,
        colour=True,
    ),
    Kind(
        "frozen features, brain CT",
        {"dataset": "ich-ct", "clients": 10},
        FEATURES,
        0.03,
        severities=(1,),
        two_classes=True,
    ),
    Kind(
        "frozen features, skin lesions",
        {"dataset": "isic2019-ham10000", "clients": 10, "train_images": 3000},
        FEATURES,
        0.03,
        severities=(1,),
        colour=True,
    ),
    Kind(
        "tables, four hospitals",
        {**HEART, "split": "column", "column": "center"},
        {"name": "mlp"},
        0.03,
        0.0,
        two_classes=True,
    ),
    Kind("tables, eight mixed clients", {**HEART, "clients": 8}, {"name": "mlp"}, 0.03, 0.0, two_classes=True),
)
NOISES: Mapping[str, Table] = {
    "symmetric 0.3": {"clients": 0.2, "labels": 0.3},
    "symmetric 0.5, half of the clients": {"clients": 0.5, "labels": 0.5},
    "symmetric 0.8": {"clients": 0.25, "labels": 0.8},
    "symmetric 1.0, 60 % of the clients": {"clients": 0.6, "labels": 1.0},
    "pair 0.4": {"clients": 0.2, "labels": 0.4, "kind": "pair"},
    "pair 0.9": {"clients": 0.25, "labels": 0.9, "kind": "pair"},
    "confusion 0.4": {"clients": 0.2, "labels": 0.4, "kind": "confusion", "matrix": "model"},
    "confusion 0.8": {"clients": 0.25, "labels": 0.8, "kind": "confusion", "matrix": "model"},
    "instance 0.4": {"clients": 0.2, "labels": 0.4, "kind": "instance"},
    "everybody 0.1, some 0.5": {"clients": 0.2, "labels": 0.5, "others_labels": 0.1},
    "rare and mislabeled 0.6": {"clients": 0.25, "labels": 0.6, "where": "evenly"},
    "below the bar 0.1": {"clients": 0.2, "labels": 0.1},
}
HUMAN = (
    ("worst", ""),
    ("worst", "aggregate"),
    ("worst", "random1"),
    ("random1", ""),
    ("", "aggregate"),
    ("", "random1"),
)


@dataclass(frozen=True)
class Case:
    """One federation."""

    kind: Kind
    noise: str  # none: nobody is mislabeled
    settings: Table  # the rest, complete

    @property
    def name(self) -> str:
        """Also of its folder."""
        text = f"{self.kind.name}, {self.noise}, {self.settings['name']}"
        return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in text).strip("_")


def cases(draws: tuple[int, ...]) -> Iterator[Case]:
    """Every federation of these draws; corruptions and severities take turns over the kinds."""
    for draw in draws:
        corruptions = cycle(sorted(CORRUPTIONS.own))
        for kind in KINDS:
            yield _case(kind, "none", {}, {}, draw)
            for _ in range(3 if kind.rare else 0):
                yield _case(kind, "none", {}, _rare(kind, next(corruptions), draw), draw)
            for place, (noise, table) in enumerate(NOISES.items()):
                if draw == draws[place % len(draws)] and not (kind.two_classes and table["labels"] == 1.0):
                    some = _rare(kind, next(corruptions), draw) if kind.rare and place % 2 else {}
                    yield _case(kind, noise, table, some, draw)
        yield from _human(draw)


def _rare(kind: Kind, corruption: str, draw: int) -> Table:
    severity = kind.severities[(draw + len(corruption)) % len(kind.severities)]
    corruption = "brightness" if corruption == "saturate" and not kind.colour else corruption
    return {"share": kind.rare, "corruption": corruption, "severity": severity}


def _human(draw: int) -> Iterator[Case]:
    """Labels that people gave to CIFAR-10's images, in all pairs of columns, with and without rare clients."""
    kind = next(kind for kind in KINDS if kind.name == "frozen features, CIFAR-10")
    for (column, others), share in ((pair, share) for pair in HUMAN for share in (0.0, 0.1)):
        table: Table = {"kind": "given", "file": "cifar10n", **({"others": others} if others else {})}
        table |= {"clients": 0.25, "column": column} if column else {}
        rare: Table = {"share": share, "sigma": 0.1} if share else {}
        name = f"human {column or 'nobody worse'}, others {others or 'clean'}"
        yield _case(kind, name, table, rare, draw)


def _case(kind: Kind, noise: str, table: Table, rare: Table, draw: int) -> Case:
    given = rare.get("corruption") or ("noise" if rare else "no rare")
    data = {**kind.data, "seed": draw, "truth": "assumed"}
    settings: Table = {
        "name": f"{given} {rare.get('severity', '')} draw {draw}".replace("  ", " "),
        "rounds": ROUNDS,
        "seeds": [draw],
        "data": data,
        "rare": rare,
        "noise": table,
        "model": kind.model,
        "training": {"batch": 16, "lr": kind.lr},
        "evaluation": {"every": ROUNDS, "last_rounds": 1},
    }
    return Case(kind, noise, settings)


def experiment(case: Case, folder: Path) -> Experiment:
    """The settings of a federation; the digits with two classes are written to the folder first."""
    data = dict(case.settings["data"])  # type: ignore[call-overload] # a table
    if data["dataset"] in TWO_CLASSES:
        data["dataset"] = str(_two_classes(data["dataset"], folder))
    name = "".join(letter if letter.isalnum() else "-" for letter in str(case.settings["name"]))
    return check_experiment({**case.settings, "data": data, "name": name}, "studies")


def _two_classes(name: str, folder: Path) -> Path:
    path, dataset = folder / f"{name}.npz", digits()
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        table = np.array(TWO_CLASSES[name])
        arrays = {"x_train": dataset.train.images, "y_train": table[dataset.train.labels]}
        arrays |= {"x_test": dataset.test.images, "y_test": table[dataset.test.labels]}
        partial = path.with_name(f"{name}.partial.npz")
        np.savez(partial, **arrays)  # type: ignore[arg-type] # names of arrays
        partial.replace(path)
    return path
