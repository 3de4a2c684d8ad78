"""Labels as numbers from 0, and the split of data that come without a test part."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedpca.data.formats.files import reading
from fedpca.data.formats.source import Label, Layout, Source
from fedpca.data.groups import Columns, group_numbers, hold_out_groups, refuse_shared
from fedpca.data.known import KNOWN
from fedpca.errors import DataError, require_plain
from fedpca.settings.experiment import DataSettings

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class RawDataset:
    """A train and a test part before they are decoded: sources, labels as numbers, the classes' names."""

    sources: tuple[Source, Source]
    labels: tuple[Labels, Labels]
    classes: tuple[str, ...]
    rows: tuple[Labels, Labels]  # where each stands in the data, from 0; those of a test part of its own come last


def read_raw(layout: Layout, settings: DataSettings) -> RawDataset:
    """Train and test part before they are decoded, with checked labels."""
    with reading(settings.dataset):
        train, test = layout.read()
    known = KNOWN.get(settings.dataset)
    names = (known.classes if known else ()) or train.classes
    labels, classes = _number_labels(train, test, names)
    require_plain(classes, f"{train.place}, {train.label_name}: the class")
    if len(np.unique(labels[0])) < 2:
        only = classes[int(labels[0][0])]
        raise DataError(f"{train.place}, {train.label_name}: training needs two classes or more, but all are {only!r}")
    if test:
        refuse_shared(train.columns, test.columns, settings.group_column)
        return RawDataset((train, test), (labels[0], labels[1]), classes, _numbered(len(labels[0]), len(labels[1])))
    rows = _test_rows(labels[0], settings, train.columns)
    parts = [np.setdiff1d(np.arange(len(labels[0])), rows), rows]
    sources = _rows_of(train, parts[0]), _rows_of(train, parts[1])
    return RawDataset(sources, (labels[0][parts[0]], labels[0][parts[1]]), classes, (parts[0], parts[1]))


def _numbered(train: int, test: int) -> tuple[Labels, Labels]:
    return np.arange(train, dtype=np.int64), np.arange(train, train + test, dtype=np.int64)


def _number_labels(train: Source, test: Source | None, names: tuple[str, ...]) -> tuple[list[Labels], tuple[str, ...]]:
    """Labels of each part as numbers from 0, and the name of each number.

    Integers stand for themselves; names are numbered in alphabetical order, or as `names` has them.
    """
    sources = [source for source in (train, test) if source]
    for source in sources:
        if not source.labels:
            raise DataError(f"{source.place} is empty: it must hold at least one image")
    numbers = [_integers(source.labels) for source in sources]
    if all(labels is not None for labels in numbers):
        coded = [labels for labels in numbers if labels is not None]
        return coded, _class_names(sources, coded, names)
    given = {str(label) for label in train.labels}
    classes = names if given <= set(names) else tuple(sorted(given))
    return [_numbers_of(source, classes) for source in sources], classes


def _integers(labels: Sequence[Label]) -> Labels | None:
    """Labels as integers, also where a text file spells them; None if one is a name."""
    try:
        return np.array([int(label) for label in labels], dtype=np.int64)
    except (ValueError, OverflowError):
        return None


def _numbers_of(source: Source, classes: tuple[str, ...]) -> Labels:
    numbers = {name: number for number, name in enumerate(classes)}
    for label in source.labels:
        if str(label) not in numbers:
            place = f"{source.place}, {source.label_name}"
            raise DataError(f"{place}: {str(label)!r} is not a class of the training part ({', '.join(classes)})")
    return np.array([numbers[str(label)] for label in source.labels], dtype=np.int64)


def _class_names(sources: list[Source], labels: list[Labels], names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of classes 0, 1, …; refuses labels that cannot be such numbers."""
    count = len(names) or int(labels[0].max()) + 1
    for source, values in zip(sources, labels, strict=True):
        low, high, place = int(values.min()), int(values.max()), f"{source.place}, {source.label_name}"
        if low < 0 or high >= count:
            got, remedy = low if low < 0 else high, "renumber them, or write names"
            raise DataError(f"{place}: labels must be 0 to {count - 1} for {count} classes, got {got}: {remedy}")
    distinct = len(np.unique(labels[0]))
    if not names and count > 2 * distinct:
        place = f"{sources[0].place}, {sources[0].label_name}"
        raise DataError(
            f"{place}: labels must be 0, 1, 2, …, but only {distinct} of 0 to {count - 1} occur: "
            "renumber them, or set data.label_column to the column of the classes"
        )
    return names or tuple(str(number) for number in range(count))


def class_numbers(values: Sequence[object], classes: Sequence[str], source: str, column: str) -> Labels:
    """A column's labels, written as names of classes or as their numbers, as numbers; an error begins with `source`."""
    numbers = {str(number): number for number in range(len(classes))}
    numbers |= {name: number for number, name in enumerate(classes)}
    found = [numbers.get(str(value), -1) for value in values]
    if -1 in found:
        row, known = found.index(-1), f"{', '.join(classes)}, or a number from 0 to {len(classes) - 1}"
        strange = f"{str(values[row])!r} in column {column!r} is not a class (row {row})"
        raise DataError(f"{source}: {strange}; a label must be one of {known}")
    return np.array(found, dtype=np.int64)


def _test_rows(labels: Labels, settings: DataSettings, columns: Columns) -> Labels:
    """Rows drawn for testing, the same share of every class; a class of one image is left to training.

    Where a column names the clients, it is the same share of every class of each client.
    """
    from fedpca.rng import numbers

    if settings.split == "column" and settings.column is not None and settings.column in columns:
        clients = np.unique(np.asarray(columns[settings.column], dtype=np.str_), return_inverse=True)[1]
        labels = clients.astype(np.int64) * (int(labels.max()) + 1) + labels
    rng, groups = numbers(settings.seed, "test part"), group_numbers(columns, settings.group_column)
    if groups is not None:
        return _require_rows(np.flatnonzero(hold_out_groups(labels, groups, settings.test_share, rng)), settings)
    drawn = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        count = min(max(1, round(settings.test_share * len(rows))), len(rows) - 1)
        drawn.append(rows[:count])
    return _require_rows(np.sort(np.concatenate(drawn)), settings)


def _require_rows(rows: Labels, settings: DataSettings) -> Labels:
    if not len(rows):
        what = "image" if settings.group_column is None else f"value of {settings.group_column!r}"
        raise DataError(f"{settings.dataset}: with one {what} per class none can be kept for testing; add a test part")
    return rows


def _rows_of(source: Source, rows: Labels) -> Source:
    """The same source with only some of its rows."""
    wanted = set(rows.tolist())
    return replace(
        source,
        labels=[source.labels[row] for row in rows],
        columns={name: [values[row] for row in rows] for name, values in source.columns.items()},
        features={name: [values[row] for row in rows] for name, values in source.features.items()},
        pictures=lambda: (item for row, item in enumerate(source.pictures()) if row in wanted),
    )
