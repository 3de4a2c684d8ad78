"""Which rows test the model: those of each client, or of each value of a column; and which groups are too small."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedpca.core import ClientId
from fedpca.data.groups import Columns, column_values, hold_out_groups
from fedpca.errors import DataError, require_plain
from fedpca.rng import numbers

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]

MIN_IMAGES = 10  # of a test group that counts: with fewer, one image moves its accuracy by more than ten percent
NO_VALUE = "no value"  # the group of rows whose cell is empty


def hold_out_own(
    rows: Mapping[ClientId, Rows], labels: Labels, groups: Rows | None, share: float, seed: int
) -> tuple[dict[ClientId, Rows], dict[ClientId, Rows]]:
    """What each client keeps to train on, and that share of its own rows of each class to test on; all ascending."""
    kept, held = dict[ClientId, Rows](), dict[ClientId, Rows]()
    for client, own in rows.items():
        together = np.arange(len(own)) if groups is None else np.unique(groups[own], return_inverse=True)[1]
        mask = hold_out_groups(labels[own], together, share, numbers(seed, "held out", client))
        kept[client], held[client] = own[~mask], own[mask]
    return kept, held


def rows_by_value(columns: Columns, name: str, setting: str) -> dict[str, Rows]:
    """The rows of each value of a column, in sorted order; those without a value last."""
    values = np.asarray(column_values(columns, name, setting), dtype=np.str_)
    found = {str(value): np.flatnonzero(values == value).astype(np.int64) for value in np.unique(values)}
    require_plain(found, f"{setting}: the value")
    empty = found.pop("", None)
    return found if empty is None else {**found, NO_VALUE: empty}


def why_not_counted(labels: Labels) -> str | None:
    """Why a test group with these labels is left out of worst and average; None if it counts."""
    if len(labels) < MIN_IMAGES:
        return f"{len(labels) or 'no'} image{'s' * (len(labels) != 1)}, fewer than {MIN_IMAGES}"
    return f"all {len(labels)} images are of one class" if len(np.unique(labels)) < 2 else None


def not_counted(rows: Mapping[str, Rows], labels: Labels) -> dict[str, str]:
    """The test groups that do not count, and why."""
    return {name: why for name, own in rows.items() if (why := why_not_counted(labels[own]))}


def require_counted(small: Mapping[str, str], count: int) -> None:
    """Stops where none of so many test groups counts."""
    if len(small) == count:
        listed = "; ".join(f"{name}: {why}" for name, why in list(small.items())[:5]) or "there are none"
        raise DataError(
            f"no test group is large enough to count ({listed}): use more test images, a larger data.test_share, "
            'or evaluation.groups = "kind", which tests on all of them together'
        )
