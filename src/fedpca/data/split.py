"""Which rows of a data set each client holds. Rows are int64, ascending, and no two clients share one."""

from collections.abc import Sequence
from math import isnan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpca.data.groups import classes_of_groups, spread_groups
from fedpca.errors import DataError, require_plain

Rows = NDArray[np.int64]

_DRAWS = 1000  # a few seconds for 50,000 images; a split that is not found by then is next to impossible


def iid(count: int, clients: int, rng: np.random.Generator, groups: Rows | None = None) -> list[Rows]:
    """Every client a random part of all rows; their sizes differ by one at most, or by one group of rows."""
    if count < clients:
        raise DataError(f"{clients} clients need at least {clients} images, but there are {count}: use fewer clients")
    if groups is not None:
        return spread_groups(groups, clients, rng)
    return [_ascending(part) for part in np.array_split(rng.permutation(count), clients)]


def dirichlet(
    labels: ArrayLike,
    clients: int,
    alpha: float,
    min_images: int,
    rng: np.random.Generator,
    groups: Rows | None = None,
) -> list[Rows]:
    """Each class spread over the clients by shares of its own, drawn from Dir(alpha): the smaller, the more uneven.

    Drawn anew until every client has at least `min_images` rows. A group goes as a whole, as its commonest class does.
    """
    labels = np.asarray(labels)
    wanted = f"a Dirichlet split of {len(labels)} images over {clients} clients with at least {min_images} each"
    if clients * min_images > len(labels):
        raise DataError(f"{wanted} is impossible: use fewer clients, more images or smaller batches")
    drawn = labels if groups is None else classes_of_groups(labels, groups)
    for _ in range(_DRAWS):
        owner = _owners(drawn, clients, alpha, rng)
        owner = owner if groups is None else owner[groups]
        if np.bincount(owner, minlength=clients).min() >= min_images:
            return [np.flatnonzero(owner == client).astype(np.int64) for client in range(clients)]
    raise DataError(
        f"{wanted} was not found in {_DRAWS} draws with alpha = {alpha:g}: "
        "use a larger alpha, fewer clients, more images or smaller batches"
    )


def by_column(values: Sequence[object] | NDArray[np.generic]) -> dict[str, Rows]:
    """A client per distinct value, under that value's name and in sorted order."""
    missing = [row for row, value in enumerate(values) if value is None or (isinstance(value, float) and isnan(value))]
    if missing:
        raise DataError(
            f"the client column has no value in {len(missing)} of {len(values)} rows, first in row {missing[0]}: "
            "fill them in or leave those rows out"
        )
    names, owner = np.unique(np.asarray(values), return_inverse=True)
    if len(names) < 2:
        found = f"only {str(names[0])!r}" if len(names) else "no rows"
        raise DataError(f"the client column needs at least two different values, but has {found}: name another column")
    require_plain(map(str, names), "the client column: the client")
    return {str(name): np.flatnonzero(owner == client).astype(np.int64) for client, name in enumerate(names)}


def by_sizes(count: int, sizes: Sequence[int], rng: np.random.Generator) -> list[Rows]:
    """So many random rows for each client; what the sizes leave over belongs to nobody."""
    if sum(sizes) > count:
        raise DataError(f"the clients' sizes add up to {sum(sizes)}, but there are {count} images: make them smaller")
    ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
    return [_ascending(part) for part in np.split(rng.permutation(count), ends)[: len(sizes)]]


def _owners(labels: NDArray[np.generic], clients: int, alpha: float, rng: np.random.Generator) -> Rows:
    """The client of every row."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        shares = rng.dirichlet(np.full(clients, alpha))
        owner[of_class] = rng.choice(clients, len(of_class), p=shares)
    return owner


def _ascending(rows: NDArray[np.integer]) -> Rows:
    return np.sort(rows).astype(np.int64)
