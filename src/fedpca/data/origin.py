"""Where the rows of a dataset come from: their numbers in the data, and the names of their images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.data.cache import Dataset, Part
from fedpca.data.columns import Column
from fedpca.data.datasets import files_of, is_embedded
from fedpca.data.formats.source import Source
from fedpca.data.labels import read_raw
from fedpca.data.places import data_folder, find_layout
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

Rows = NDArray[np.int64]
Cells = tuple[tuple[str, str], ...]  # column and text of a row of a table
GIVEN = "given in Python"  # as `data.dataset`: no file has these data
PATH = "path"  # the column of their images' names, where they have any
ROW = "row"  # the column of data that are given in Python: their place among their client's


@dataclass(frozen=True)
class Origin:
    """Of one part: what a person needs to find each of its rows again."""

    rows: Rows  # in the data, from 0; in those of its client where these are given in Python
    names: tuple[str, ...]  # of the images; empty texts where rows have none


def origins(settings: DataSettings, dataset: Dataset, data_dir: Path | None = None) -> tuple[Origin, Origin]:
    """The origin of a dataset's train and test part."""
    counts = len(dataset.train.labels), len(dataset.test.labels)
    if ROW in dataset.train.columns and is_given(settings):
        train, test = (_given_origin(part) for part in (dataset.train, dataset.test))
        return train, test
    if is_embedded(settings.dataset):
        train, test = (Origin(np.arange(count, dtype=np.int64), ("",) * count) for count in counts)
        return train, Origin(counts[0] + test.rows, test.names)
    files = files_of(settings, find_layout(settings, data_folder(data_dir), lambda done, total: None))
    raw = read_raw(files.layout, settings)
    found = [_origin(source, rows, dataset) for source, rows in zip(raw.sources, raw.rows, strict=True)]
    if tuple(len(own.rows) for own in found) != counts:
        raise DataError(f"{dataset.name}: the files changed while they were read: start again")
    return found[0], found[1]


def _given_origin(part: Part) -> Origin:
    rows = part.columns[ROW].astype(np.int64)
    return Origin(rows, tuple(part.columns[PATH].tolist()) if PATH in part.columns else ("",) * len(rows))


def is_given(settings: DataSettings) -> bool:
    """Whether the data were given in Python: no file has them."""
    return settings.dataset == GIVEN


def _origin(source: Source, rows: Rows, dataset: Dataset) -> Origin:
    """Names and numbers of the rows that could be read."""
    names = [name for name, _ in source.pictures()] if not dataset.table else [""] * len(rows)
    if not dataset.skipped:
        return Origin(rows, tuple(names))
    lacking = {name for name in names if any(line.startswith(f"{name}: ") for line in dataset.skipped)}
    kept = [place for place, name in enumerate(names) if name not in lacking]
    return Origin(rows[kept], tuple(names[place] for place in kept))


def joined(dataset: Dataset, train: Origin, test: Origin, own_numbers: bool) -> tuple[Dataset, Origin]:
    """Both parts as one, in the order of the data; one after the other where each client counts its own rows."""
    rows = np.concatenate([train.rows, test.rows])
    order = np.arange(len(rows)) if own_numbers else np.argsort(rows, kind="stable")
    names = (*train.names, *test.names)
    parts = dataset.train, dataset.test
    columns = {
        name: np.concatenate([part.columns[name] for part in parts])[order]
        for name in dataset.train.columns
        if name in dataset.test.columns
    }
    images = np.concatenate([part.images for part in parts])[order]
    whole = Part(images, np.concatenate([part.labels for part in parts])[order], columns)
    return replace(dataset, train=whole), Origin(rows[order], tuple(names[place] for place in order.tolist()))


def cells_of(dataset: Dataset, rows: Rows) -> Iterator[Cells]:
    """What some rows of a table's training part say."""
    for values in dataset.train.images[rows].reshape(len(rows), -1):
        yield tuple(
            (column.name, _text(column, float(value))) for column, value in zip(dataset.table, values, strict=True)
        )


def _text(column: Column, value: float) -> str:
    if np.isnan(value):
        return ""
    return column.levels[int(value)] if column.levels else f"{value:g}"
