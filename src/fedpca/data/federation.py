"""The clients' data, the test groups, and the truth about both."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpca.core import ClientId, Images, Shard
from fedpca.data import split
from fedpca.data.corrected import corrections_of
from fedpca.data.corrupt import CORRUPTIONS, corrupt
from fedpca.data.datasets import Dataset, Part
from fedpca.data.groups import column_values, group_numbers, hold_out_groups
from fedpca.data.held_out import hold_out_own, not_counted, require_counted, rows_by_value
from fedpca.data.noise import mislabeled_clients, noisy_labels
from fedpca.data.noise_kind import Look, NoiseData
from fedpca.data.standardise import (
    EncodedColumn,
    add_sums,
    encode,
    encoding_of,
    require_table_settings,
    sums_of,
    values_of,
)
from fedpca.data.truth import Truth, true_labels, truth_of
from fedpca.errors import DataError
from fedpca.rng import numbers
from fedpca.settings.base import rounded
from fedpca.settings.experiment import DataSettings, Experiment, RareSettings

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]
Columns = Mapping[str, NDArray[np.str_]]
Pixels = NDArray[np.uint8]  # (N, C, H, W)


@dataclass(frozen=True)
class SharedRows:
    """Rows of an image array that is shared by all clients, copied only when a batch asks for them."""

    store: Tensor  # (all, C, H, W), memory-mapped where it comes from the cache
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, picks: Tensor) -> Tensor:
        return self.store.index_select(0, self.rows[picks])


@dataclass(frozen=True)
class Federation:
    """A whole experiment's data."""

    shards: Mapping[ClientId, Shard]  # all that clients get
    tests: Mapping[str, Shard]  # by kind ("common" and, where there are rare clients, "rare"), client or column
    truth: Truth
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    table: tuple[EncodedColumn, ...] = ()  # how columns went into the numbers, where these are no images
    uncounted: Mapping[str, str] = field(default_factory=dict)  # test groups that are too small, and why
    rows: Mapping[ClientId, Rows] = field(default_factory=dict)  # of the dataset's training part, that a client has


def federate(
    experiment: Experiment, dataset: Dataset, data_dir: Path | None = None, look: Look | None = None
) -> Federation:
    """The data spread over clients, with rare clients' images corrupted and mislabeled clients' labels flipped.

    `data_dir` is the folder of datasets, in which `noise.file` may be; `look` gives features of images, if the clients
    train on those, to noise that depends on what images look like.

    >>> from fedpca import Experiment, federate, load
    >>> experiment = Experiment(data={"clients": 4}, noise={"clients": 0.25, "labels": 0.8})
    >>> federation = federate(experiment, load(experiment.data))
    >>> list(federation.shards), federation.shape
    (['0', '1', '2', '3'], (1, 8, 8))
    """
    settings, rare, noise = experiment.data, experiment.rare, experiment.noise
    if dataset.table:
        require_table_settings(experiment, dataset.name)
    corrections = corrections_of(settings, dataset, data_dir)
    dataset = corrections.of_test(dataset)
    train = _draw(dataset.train, settings.train_images, settings.seed, "train")
    groups = group_numbers(train.columns, settings.group_column)
    kept, aside = set_aside(train.labels, settings.validation_share, settings.seed, groups)
    own = split_rows(settings, train.labels[kept], _columns_at(train.columns, kept), experiment.training.batch)
    rows = {client: kept[places] for client, places in own.items()}
    clients = list(rows)
    rare_ids = tuple(clients[len(clients) - rounded(rare.share * len(clients)) :])
    wrong_ids = mislabeled_clients(clients, rare_ids, noise.clients, noise.where, numbers(settings.seed, "mislabeled"))
    held: dict[ClientId, Rows] = {}
    if _tests_own_rows(experiment, dataset.test):
        rows, held = hold_out_own(rows, train.labels, groups, settings.test_share, settings.seed)
        _require_two(rows)
    test = train if held else _test_part(experiment, dataset.test, train, aside)
    train, test, table = _standardised(dataset, train, test, rows.values())
    if settings.truth_column in test.columns:
        test = replace(test, labels=true_labels(test, settings.truth_column, dataset.classes))
    true = true_labels(train, settings.truth_column, dataset.classes)
    drawn = _drawn_rows(len(dataset.train.labels), settings.train_images, settings.seed, "train")
    source = (dataset.classes, settings.seed, dataset.train, drawn, data_dir, look)
    labels = noisy_labels(NoiseData(noise, train.images, train.labels, *source), rows, wrong_ids)
    labels = {client: corrections.of_train(own, drawn[rows[client]]) for client, own in labels.items()}
    shards = _shards(experiment, train, rows, rare_ids, labels)
    tests, uncounted = _tests(experiment, test, held, clients, rare_ids)
    return Federation(
        shards,
        tests,
        truth_of(experiment, true, rows, shards, rare_ids, wrong_ids),
        (train.images.shape[1], train.images.shape[2], train.images.shape[3]),
        dataset.classes,
        uncounted=uncounted,
        table=table,
        rows={client: drawn[own] for client, own in rows.items()},
    )


def _test_part(experiment: Experiment, test: Part, train: Part, aside: Rows) -> Part:
    """The images that the model is tested on, where they are nobody's: those set aside, or of the test part."""
    if experiment.evaluation.on == "validation":
        return _part_at(train, aside)
    return _draw(test, experiment.data.test_images, experiment.data.seed, "test")


def _standardised(
    dataset: Dataset, train: Part, test: Part, clients: Iterable[Rows]
) -> tuple[Part, Part, tuple[EncodedColumn, ...]]:
    """Both parts of a table as inputs of a model, by sums over each client's rows to train on; images as they are."""
    if not dataset.table:
        return train, test, ()
    values = [values_of(part.images) for part in (train, test)]
    total = add_sums([sums_of(values[0][own], dataset.table) for own in clients])
    encoding = encoding_of([column.name for column in dataset.table], total)
    parts = [
        replace(part, images=encode(encoding, dataset.table, own))
        for part, own in zip((train, test), values, strict=True)
    ]
    return parts[0], parts[1], encoding


def _shards(
    experiment: Experiment,
    train: Part,
    rows: Mapping[ClientId, Rows],
    rare_ids: Sequence[ClientId],
    labels: Mapping[ClientId, Labels],
) -> dict[ClientId, Shard]:
    """What each client gets: images, which share memory where they are not corrupted, and labels, right or not."""
    seed, store = experiment.data.seed, _tensor(train.images)
    clean, shards = _clean_shares(experiment.rare.clean_share, rare_ids), {}
    for client, own in rows.items():
        x: Images = SharedRows(store, torch.from_numpy(own))
        if client in clean:
            rng = numbers(seed, "corrupt", client)
            x = _tensor(_corrupt(train.images[own], experiment.rare, clean[client], rng))
        shards[client] = Shard(x, torch.from_numpy(labels[client]))
    return shards


def set_aside(labels: Labels, share: float, seed: int, groups: Rows | None = None) -> tuple[Rows, Rows]:
    """Rows for the clients, and that share of each class, drawn at random, for validation; both ascending."""
    rng, aside = numbers(seed, "validation"), np.zeros(len(labels), dtype=np.bool_)
    if groups is not None and share > 0:
        aside = hold_out_groups(labels, groups, share, rng)
    for label in np.unique(labels) if groups is None and share > 0 else ():
        of_class = np.flatnonzero(labels == label)
        aside[rng.choice(of_class, rounded(share * len(of_class)), replace=False)] = True
    return np.flatnonzero(~aside).astype(np.int64), np.flatnonzero(aside).astype(np.int64)


def split_rows(settings: DataSettings, labels: Labels, columns: Columns, batch: int) -> dict[ClientId, Rows]:
    """Which rows belong to which client, clients in their order."""
    count, rng, groups = len(labels), numbers(settings.seed, "split"), group_numbers(columns, settings.group_column)
    if settings.split == "column":
        return _require_two(split.by_column(column_values(columns, settings.column or "", "data.column")))
    if settings.split == "sizes":
        rows = split.by_sizes(count, settings.sizes or (), rng)
    elif settings.split == "dirichlet":
        clients = settings.clients or 0
        min_images = settings.min_images or min(2 * batch, count // (2 * clients))
        rows = split.dirichlet(labels, clients, settings.alpha, min_images, rng, groups)
    else:
        rows = split.iid(count, settings.clients or 0, rng, groups)
    return _require_two({str(number): own for number, own in enumerate(rows)})


def _require_two(rows: dict[ClientId, Rows]) -> dict[ClientId, Rows]:
    """The same rows, if every client has at least two: batch norm cannot train on one image."""
    for client, own in rows.items():
        if len(own) < 2:
            raise DataError(
                f"client {client!r} has {len(own)} training image; two are needed: use fewer clients, or drop it"
            )
    return rows


def _draw(part: Part, limit: int | None, seed: int, which: str) -> Part:
    """A random part of that many images in their old order; all of them without a limit."""
    rows = _drawn_rows(len(part.labels), limit, seed, which)
    return part if len(rows) == len(part.labels) else _part_at(part, rows)  # a memory map stays one


def _drawn_rows(count: int, limit: int | None, seed: int, which: str) -> Rows:
    """That many rows, drawn at random, ascending; all of them without a limit."""
    if limit is None or limit == count:
        return np.arange(count, dtype=np.int64)
    if limit > count:
        raise DataError(f"data.{which}_images = {limit}, but there are only {count} {which} images")
    return np.sort(numbers(seed, "subset", which).choice(count, limit, replace=False)).astype(np.int64)


def _part_at(part: Part, rows: Rows) -> Part:
    return Part(part.images[rows], part.labels[rows], _columns_at(part.columns, rows))


def _columns_at(columns: Columns, rows: Rows) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def _clean_shares(shares: Sequence[float], rare: Sequence[ClientId]) -> dict[ClientId, float]:
    """The share of each rare client's images that stay clean."""
    if len(shares) not in (1, len(rare)):
        needed = f"one share for all {len(rare)} rare clients, or one for each"
        raise DataError(f"rare.clean_share must give {needed}, got {len(shares)}")
    return dict(zip(rare, shares if len(shares) == len(rare) else [shares[0]] * len(rare), strict=True))


def _corrupt(images: NDArray[np.generic], rare: RareSettings, clean: float, rng: np.random.Generator) -> Pixels:
    """Images of a rare client: a share stays clean, the rest is corrupted once and for all."""
    kind = CORRUPTIONS[rare.corruption]
    amount = kind.constant(rare.severity, rare.table) if rare.sigma is None else rare.sigma
    pixels: Pixels = images.astype(np.uint8, copy=False)
    if clean == 0:
        return corrupt(pixels, kind, amount, rng)
    spoiled = np.sort(rng.choice(len(images), rounded((1 - clean) * len(images)), replace=False))
    mixed = np.array(pixels)
    mixed[spoiled] = corrupt(pixels[spoiled], kind, amount, rng)
    return mixed


def _tests_own_rows(experiment: Experiment, test: Part) -> bool:
    """Whether each client is tested on rows of its own: where the test part does not say whose its rows are."""
    if experiment.test_groups != "client" or experiment.evaluation.on == "validation":
        return False
    return experiment.data.split != "column" or experiment.data.column not in test.columns


def _tests(
    experiment: Experiment,
    test: Part,
    held: Mapping[ClientId, Rows],
    clients: Sequence[ClientId],
    rare_ids: Sequence[ClientId],
) -> tuple[dict[str, Shard], dict[str, str]]:
    """The test groups that count, and those that do not, with the reason; `held` are the clients' own rows, if any."""
    settings, evaluation = experiment.data, experiment.evaluation
    if experiment.test_groups == "kind":
        return _tests_by_kind(test, experiment.rare, settings.seed, bool(rare_ids), evaluation.on), {}
    if experiment.test_groups == "column":
        rows = rows_by_value(test.columns, evaluation.group_column or "", "evaluation.group_column")
        clean = dict[ClientId, float]()
    else:
        found = held or rows_by_value(test.columns, settings.column or "", "data.column")
        rows = {**{client: np.array([], dtype=np.int64) for client in clients}, **found}
        clean = _clean_shares(experiment.rare.clean_share, rare_ids)
    small, store, tests = not_counted(rows, test.labels), _tensor(test.images), {}
    if evaluation.groups is None and len(small) == len(rows):  # nobody asked for groups that the data are too few for
        every = _part_at(test, np.sort(np.concatenate(list(rows.values()))))
        return _tests_by_kind(every, experiment.rare, settings.seed, bool(rare_ids), evaluation.on), small
    require_counted(small, len(rows))
    for name in (name for name in rows if name not in small):
        x: Images = SharedRows(store, torch.from_numpy(rows[name]))
        if name in clean:  # as that client's training images are
            rng = numbers(settings.seed, "corrupt", evaluation.on, name)
            x = _tensor(_corrupt(test.images[rows[name]], experiment.rare, clean[name], rng))
        tests[name] = Shard(x, torch.from_numpy(test.labels[rows[name]]))
    return tests, small


def _tests_by_kind(test: Part, rare: RareSettings, seed: int, any_rare: bool, which: str) -> dict[str, Shard]:
    """The clean test (or validation) images and, where there are rare clients, the same images all corrupted."""
    labels = torch.from_numpy(np.asarray(test.labels))
    if len(np.unique(test.labels)) < 2:
        raise DataError(
            f"the {len(labels)} {which} images are of fewer than two classes: accuracy per class and AUC need two"
        )
    groups = {"common": Shard(_tensor(test.images), labels)}
    if any_rare:
        spoiled = _corrupt(test.images, rare, 0.0, numbers(seed, "corrupt", which))
        groups["rare"] = Shard(_tensor(spoiled), labels)
    return groups


def _tensor(images: NDArray[np.generic]) -> Tensor:
    """The same memory as a tensor; a read-only memory map stays one, and nobody writes to images."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(images)
