"""Wrong labels on purpose: which clients have them, and what they become.

A kind of your own is a `NoiseKind` that `noise.kind = "package.module:name"` names, or an entry point of the group
`fedpca.noise_kinds`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpca.errors import DataError, SettingsError
from fedpca.settings.base import rounded
from fedpca.settings.experiment import NoiseSettings
from fedpca.settings.registry import Registry

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class NoiseKind:
    """What labels become when they are made wrong.

    >>> from fedpca import NoiseKind
    >>> mirror = NoiseKind("mirror", "the class from the other end", lambda y, classes, exclusive, rng: classes - 1 - y)
    >>> mirror.replace(3, 10, True, None)
    6
    """

    name: str
    summary: str
    replace: Callable[[Labels, int, bool, np.random.Generator], Labels]  # labels, classes, whether all must be wrong


def _symmetric(labels: Labels, classes: int, exclusive: bool, rng: np.random.Generator) -> Labels:
    """Adding U{0..C-1} modulo C draws evenly from all classes, adding U{1..C-1} from all but the present one."""
    return (labels + rng.integers(1 if exclusive else 0, classes, len(labels))) % classes


def _pair(labels: Labels, classes: int, exclusive: bool, rng: np.random.Generator) -> Labels:
    return (labels + 1) % classes


OWN = NoiseKind("symmetric", "any other class, all as likely", _symmetric), NoiseKind("pair", "the next class", _pair)
NOISE_KINDS = Registry("noise kind", NoiseKind, {own.name: own for own in OWN}, group="fedpca.noise_kinds")


def check_noise(noise: NoiseSettings) -> None:
    """Refuses an unknown kind of label noise."""
    try:
        NOISE_KINDS[noise.kind]
    except SettingsError as error:
        raise SettingsError(f"noise.kind: {error}") from None


def flip(
    labels: ArrayLike,
    classes: int,
    share: float,
    rng: np.random.Generator,
    mode: Literal["exclusive", "inclusive"] = "exclusive",
    kind: str = "symmetric",
) -> Labels:
    """Labels of which a share were replaced.

    exclusive: exactly that share, and each by a wrong class. inclusive: each label by chance, and a symmetric draw is
    from all classes, so that some stay right by luck: share * (C - 1) / C of all are wrong on average.
    """
    if classes < 2:
        raise DataError(f"wrong labels need at least two classes, got {classes}: use other data or no noise")
    given = np.array(labels, dtype=np.int64)
    picked = _pick_rows(len(given), share, rng, mode)
    given[picked] = NOISE_KINDS[kind].replace(given[picked], classes, mode == "exclusive", rng)
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


def _pick_rows(count: int, share: float, rng: np.random.Generator, mode: str) -> Labels:
    """Rows whose labels are replaced."""
    if mode == "inclusive":
        return np.flatnonzero(rng.random(count) < share).astype(np.int64)
    return rng.choice(count, rounded(share * count), replace=False).astype(np.int64)
