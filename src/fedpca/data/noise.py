"""Wrong labels on purpose: which clients have them, and what they become."""

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpca.errors import DataError
from fedpca.settings.base import rounded

Labels = NDArray[np.int64]


def flip(
    labels: ArrayLike,
    classes: int,
    share: float,
    rng: np.random.Generator,
    mode: Literal["exclusive", "inclusive"] = "exclusive",
    kind: Literal["symmetric", "pair"] = "symmetric",
) -> Labels:
    """Labels of which a share were replaced.

    exclusive: exactly that share, and each by a wrong class. inclusive: each label by chance, and a symmetric draw is
    from all classes, so that some stay right by luck: share * (C - 1) / C of all are wrong on average.
    symmetric: every class is as likely. pair: always the next class.
    """
    if classes < 2:
        raise DataError(f"wrong labels need at least two classes, but there is {classes}: use other data or no noise")
    given = np.array(labels, dtype=np.int64)
    picked = _picked(len(given), share, rng, mode)
    # Adding U{0..C-1} modulo C draws evenly from all classes, adding U{1..C-1} from all but the present one.
    first = 1 if mode == "exclusive" else 0
    step = 1 if kind == "pair" else rng.integers(first, classes, len(picked))
    given[picked] = (given[picked] + step) % classes
    return given


def mislabeled_clients(
    clients: Sequence[str],
    rare: Collection[str],
    share: float,
    where: Literal["common", "anywhere", "evenly"],
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Who gets wrong labels, in the clients' order.

    A share of all clients, drawn among the common ones, or anywhere; evenly: that share of the common and of the rare.
    """
    if where == "evenly":
        kinds = [client for client in clients if client not in rare], [client for client in clients if client in rare]
        drawn = {client for kind in kinds for client in mislabeled_clients(kind, (), share, "anywhere", rng)}
        return tuple(client for client in clients if client in drawn)
    wanted = rounded(share * len(clients))
    pool = [client for client in clients if where == "anywhere" or client not in rare]
    if wanted > len(pool):
        raise DataError(
            f"{wanted} mislabeled clients were asked for ({share:g} of {len(clients)}), but only {len(pool)} may be "
            f"mislabeled (where = {where!r}): lower the share of mislabeled or of rare clients"
        )
    return tuple(pool[place] for place in sorted(rng.choice(len(pool), wanted, replace=False)))


def _picked(count: int, share: float, rng: np.random.Generator, mode: str) -> Labels:
    """Rows whose labels are replaced."""
    if mode == "inclusive":
        return np.flatnonzero(rng.random(count) < share).astype(np.int64)
    return rng.choice(count, rounded(share * count), replace=False).astype(np.int64)
