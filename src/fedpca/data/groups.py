"""Rows that belong together, such as the images of one patient: every split leaves a group on one side."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpca.errors import DataError
from fedpca.settings.base import rounded

Rows = NDArray[np.int64]
Columns = Mapping[str, Sequence[str] | NDArray[np.str_]]


def group_numbers(columns: Columns, name: str | None) -> Rows | None:
    """The group of every row, counted from 0, by the values of `data.group_column`; None without that setting."""
    if name is None:
        return None
    values = np.asarray(column_values(columns, name, "data.group_column"), dtype=np.str_)
    if len(missing := np.flatnonzero(values == "")):
        raise DataError(
            f"data.group_column: {name!r} has no value in {len(missing)} of {len(values)} rows, "
            f"first in row {missing[0]}: fill them in, or leave those rows out"
        )
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def column_values(columns: Columns, name: str, setting: str) -> Sequence[str] | NDArray[np.str_]:
    """A column of the data; an error names the setting that asks for it, and the columns that are there."""
    if name not in columns:
        there = ", ".join(sorted(columns)) or "none"
        raise DataError(f"{setting}: the data have no column {name!r}; there are: {there}")
    return columns[name]


def refuse_shared(train: Columns, test: Columns, name: str | None) -> None:
    """Stops where a group is in the train part and in the test part that the data brings."""
    if name is None:
        return
    one, other = (set(map(str, column_values(part, name, "data.group_column"))) for part in (train, test))
    if both := one & other:
        raise DataError(
            f"data.group_column: train and test part share values of {name!r} ({len(both)}, first {min(both)!r}): "
            "take them out of one part, or leave data.group_column out"
        )


def classes_of_groups(labels: ArrayLike, groups: Rows) -> Rows:
    """The commonest class of each group; of several the smallest number."""
    names, numbers = np.unique(np.asarray(labels), return_inverse=True)
    counts = np.zeros((int(groups.max(initial=-1)) + 1, len(names)), dtype=np.int64)
    np.add.at(counts, (groups, numbers), 1)
    commonest: Rows = names[counts.argmax(axis=1)].astype(np.int64)
    return commonest


def hold_out_groups(labels: ArrayLike, groups: Rows, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows are held out: whole groups, about that share of the rows in each class of groups.

    At least one group of a class that has several is held out, and one is never.
    """
    sizes, classes = np.bincount(groups), classes_of_groups(labels, groups)
    held = np.zeros(len(sizes), dtype=np.bool_)
    for label in np.unique(classes):
        of_class = rng.permutation(np.flatnonzero(classes == label))
        held[_fill(of_class, sizes, rounded(share * int(sizes[of_class].sum())))] = True
    return held[groups]


def _fill(groups: Rows, sizes: Rows, target: int) -> list[int]:
    """Groups that have no more rows than the target together, never the last; if none fits, the smallest of several."""
    taken, total = list[int](), 0
    for group in groups[:-1].tolist():
        if total + sizes[group] <= target:
            taken.append(group)
            total += int(sizes[group])
    return taken or ([int(groups[sizes[groups].argmin()])] if len(groups) > 1 else [])


def spread_groups(groups: Rows, clients: int, rng: np.random.Generator) -> list[Rows]:
    """Groups in random order, each to the client with the fewest rows so far."""
    sizes = np.bincount(groups)
    if len(sizes) < clients:
        raise DataError(
            f"{clients} clients need at least {clients} groups of data.group_column, but there are {len(sizes)}: "
            "use fewer clients"
        )
    owner, load = np.zeros(len(sizes), dtype=np.int64), np.zeros(clients, dtype=np.int64)
    for group in rng.permutation(len(sizes)):
        owner[group] = load.argmin()
        load[owner[group]] += sizes[group]
    return [np.flatnonzero(owner[groups] == client).astype(np.int64) for client in range(clients)]
