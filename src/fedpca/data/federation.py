"""The clients' data, the test groups, and the truth about both."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpca.core import ClientId, Shard
from fedpca.data import split
from fedpca.data.corrupt import CORRUPTIONS, corrupt
from fedpca.data.datasets import Dataset, Part
from fedpca.data.noise import flip, mislabeled_clients
from fedpca.errors import DataError
from fedpca.rng import numbers
from fedpca.settings.base import rounded
from fedpca.settings.experiment import DataSettings, Experiment, RareSettings

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]
Columns = Mapping[str, NDArray[np.str_]]
Pixels = NDArray[np.uint8]  # (N, C, H, W)


@dataclass(frozen=True)
class Taken:
    """Rows of an image array that is shared by all clients, copied only when a batch asks for them."""

    store: Tensor  # (all, C, H, W), memory-mapped where it comes from the cache
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, picks: Tensor) -> Tensor:
        return self.store.index_select(0, self.rows[picks])


@dataclass(frozen=True)
class Truth:
    """What nobody in the federation knows; only evaluation may read it."""

    rare: tuple[ClientId, ...]
    mislabeled: tuple[ClientId, ...]
    labels: Mapping[ClientId, Tensor]  # the true labels of every client's images


@dataclass(frozen=True)
class Federation:
    """A whole experiment's data."""

    shards: Mapping[ClientId, Shard]  # all that clients get
    tests: Mapping[str, Shard]  # "common" and, where there are rare clients, "rare"
    truth: Truth
    shape: tuple[int, int, int]
    classes: tuple[str, ...]


def federate(experiment: Experiment, dataset: Dataset) -> Federation:
    """The data spread over clients, with rare clients' images corrupted and mislabeled clients' labels flipped."""
    settings, rare, noise = experiment.data, experiment.rare, experiment.noise
    train = _some(dataset.train, settings.train_images, settings.seed, "train")
    kept, aside = set_aside(train.labels, settings.validation_share, settings.seed)
    split_of_kept = split_rows(settings, train.labels[kept], _at(train.columns, kept), experiment.training.batch)
    rows = {client: kept[own] for client, own in split_of_kept.items()}
    if experiment.evaluation.on == "validation":
        test = _taken(train, aside)
    else:
        test = _some(dataset.test, settings.test_images, settings.seed, "test")
    clients = list(rows)
    rare_ids = tuple(clients[len(clients) - rounded(rare.share * len(clients)) :])
    wrong_ids = mislabeled_clients(clients, rare_ids, noise.clients, noise.where, numbers(settings.seed, "mislabeled"))
    clean, store = _clean_shares(rare.clean_share, rare_ids), _tensor(train.images)
    shards, true = {}, {}
    for client, own in rows.items():
        true[client] = torch.from_numpy(train.labels[own])
        rng = numbers(settings.seed, "labels", client)
        given = flip(train.labels[own], len(dataset.classes), noise.labels, rng, noise.mode, noise.kind)
        rng = numbers(settings.seed, "corrupt", client)
        x = _corrupted(train.images[own], rare, clean[client], rng) if client in clean else None
        y = torch.from_numpy(given) if client in wrong_ids else true[client].clone()
        shards[client] = Shard(Taken(store, torch.from_numpy(own)) if x is None else _tensor(x), y)
    return Federation(
        shards,
        _tests(test, rare, settings.seed, bool(rare_ids), experiment.evaluation.on),
        Truth(rare_ids, wrong_ids, true),
        (train.images.shape[1], train.images.shape[2], train.images.shape[3]),
        dataset.classes,
    )


def set_aside(labels: Labels, share: float, seed: int) -> tuple[Rows, Rows]:
    """Rows for the clients, and that share of each class, drawn at random, for validation; both ascending."""
    rng, aside = numbers(seed, "validation"), np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels) if share > 0 else ():
        of_class = np.flatnonzero(labels == label)
        aside[rng.choice(of_class, rounded(share * len(of_class)), replace=False)] = True
    return np.flatnonzero(~aside).astype(np.int64), np.flatnonzero(aside).astype(np.int64)


def split_rows(settings: DataSettings, labels: Labels, columns: Columns, batch: int) -> dict[ClientId, Rows]:
    """Which rows belong to which client, clients in their order."""
    count, rng = len(labels), numbers(settings.seed, "split")
    if settings.split == "column":
        if settings.column is None or settings.column not in columns:
            there = ", ".join(sorted(columns)) or "none"
            raise DataError(f"data.column: the data have no column {settings.column!r}; there are: {there}")
        return _enough(split.by_column(columns[settings.column]))
    if settings.split == "sizes":
        rows = split.by_sizes(count, settings.sizes or (), rng)
    elif settings.split == "dirichlet":
        clients = settings.clients or 0
        least = settings.min_images or min(2 * batch, count // (2 * clients))
        rows = split.dirichlet(labels, clients, settings.alpha, least, rng)
    else:
        rows = split.iid(count, settings.clients or 0, rng)
    return _enough({str(number): own for number, own in enumerate(rows)})


def _enough(rows: dict[ClientId, Rows]) -> dict[ClientId, Rows]:
    """The same rows, if every client has at least two: batch norm cannot train on one image."""
    for client, own in rows.items():
        if len(own) < 2:
            raise DataError(
                f"client {client!r} has {len(own)} training image; two are needed: use fewer clients, or drop it"
            )
    return rows


def _some(part: Part, limit: int | None, seed: int, which: str) -> Part:
    """A random part of that many images in their old order; all of them without a limit."""
    count = len(part.labels)
    if limit is None or limit == count:
        return part
    if limit > count:
        raise DataError(f"data.{which}_images = {limit}, but there are only {count} {which} images")
    return _taken(part, np.sort(numbers(seed, "subset", which).choice(count, limit, replace=False)))


def _taken(part: Part, rows: Rows) -> Part:
    return Part(part.images[rows], part.labels[rows], _at(part.columns, rows))


def _at(columns: Columns, rows: Rows) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def _clean_shares(shares: Sequence[float], rare: Sequence[ClientId]) -> dict[ClientId, float]:
    """The share of each rare client's images that stay clean."""
    if len(shares) not in (1, len(rare)):
        raise DataError(
            f"rare.clean lists {len(shares)} shares, but {len(rare)} clients are rare: give one for all, or one each"
        )
    return dict(zip(rare, shares if len(shares) == len(rare) else [shares[0]] * len(rare), strict=True))


def _corrupted(images: Pixels, rare: RareSettings, clean: float, rng: np.random.Generator) -> Pixels:
    """Images of a rare client: a share stays clean, the rest is corrupted once and for all."""
    kind = CORRUPTIONS[rare.corruption]
    amount = kind.constant(rare.severity, rare.table) if rare.sigma is None else rare.sigma
    if clean == 0:
        return corrupt(images, kind, amount, rng)
    spoiled = np.sort(rng.choice(len(images), rounded((1 - clean) * len(images)), replace=False))
    mixed = np.array(images)
    mixed[spoiled] = corrupt(images[spoiled], kind, amount, rng)
    return mixed


def _tests(test: Part, rare: RareSettings, seed: int, any_rare: bool, which: str) -> dict[str, Shard]:
    """The clean test (or validation) images and, where there are rare clients, the same images all corrupted."""
    labels = torch.from_numpy(np.asarray(test.labels))
    if len(np.unique(test.labels)) < 2:
        raise DataError(
            f"the {len(labels)} {which} images are of fewer than two classes: accuracy per class and AUC need two"
        )
    groups = {"common": Shard(_tensor(test.images), labels)}
    if any_rare:
        spoiled = _corrupted(test.images, rare, 0.0, numbers(seed, "corrupt", which))
        groups["rare"] = Shard(_tensor(spoiled), labels)
    return groups


def _tensor(images: Pixels) -> Tensor:
    """The same memory as a tensor; a read-only memory map stays one, and nobody writes to images."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(images)
