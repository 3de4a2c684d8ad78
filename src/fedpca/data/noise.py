"""Wrong labels on purpose: which clients have them, how many, and what they become.

A kind of your own is a `NoiseKind` that `noise.kind = "package.module:name"` names, or an entry point of the group
`fedpca.noise_kinds`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedpca.data.noise_given import check_given, given_labels
from fedpca.data.noise_kind import Labels, NoiseData, NoiseKind, Rows, replace_share
from fedpca.data.noise_model import check_confusion, confuse, doubt
from fedpca.errors import DataError, SettingsError
from fedpca.settings.base import rounded
from fedpca.settings.experiment import NoiseSettings
from fedpca.settings.registry import Registry

__all__ = ["NOISE_KINDS", "NoiseKind", "check_noise", "flip", "mislabeled_clients", "noisy_labels"]

FOR_SOME = ("file", "column", "others", "matrix")  # settings that only some kinds use


def _symmetric(labels: Labels, classes: int, exclusive: bool, rng: np.random.Generator) -> Labels:
    """Adding U{0..C-1} modulo C draws evenly from all classes, adding U{1..C-1} from all but the present one."""
    return (labels + rng.integers(1 if exclusive else 0, classes, len(labels))) % classes


def _pair(labels: Labels, classes: int, exclusive: bool, rng: np.random.Generator) -> Labels:
    return (labels + 1) % classes


OWN = (
    NoiseKind("symmetric", "any other class, all as likely", _symmetric),
    NoiseKind("pair", "the next class", _pair),
    NoiseKind(
        "given",
        "labels as a column has them, such as those that people gave",
        start=given_labels,
        uses=("file", "column", "others"),
        check=check_given,
    ),
    NoiseKind(
        "confusion",
        "a class that theirs is taken for, by a matrix that is given or estimated",
        start=confuse,
        uses=("matrix",),
        check=check_confusion,
    ),
    NoiseKind("instance", "images that a model doubts, and a class that it finds likely for the image", start=doubt),
)
NOISE_KINDS = Registry("noise kind", NoiseKind, {own.name: own for own in OWN}, group="fedpca.noise_kinds")


def check_noise(noise: NoiseSettings) -> None:
    """Refuses an unknown kind of label noise, and settings that the kind does not use or cannot use."""
    try:
        kind = NOISE_KINDS[noise.kind]
    except SettingsError as error:
        raise SettingsError(f"noise.kind: {error}") from None
    for key in FOR_SOME:
        if getattr(noise, key) is not None and key not in kind.uses:
            users = " or ".join(repr(own.name) for own in OWN if key in own.uses)
            raise SettingsError(
                f"noise.{key} means nothing to noise.kind = {noise.kind!r}: leave it out, or use {users}"
            )
    kind.check(noise)


def noisy_labels(data: NoiseData, rows: Mapping[str, Rows], mislabeled: Sequence[str]) -> dict[str, Labels]:
    """Every client's labels, right or not; `rows` are the clients' rows of the data."""
    from fedpca.rng import numbers  # here: it imports PyTorch, which whoever lists kinds does not wait for

    noise = data.settings
    if not noise.injects:
        return {client: data.labels[own] for client, own in rows.items()}
    check_noise(noise)
    shares = _wrong_shares(noise, list(rows), mislabeled)
    relabel = NOISE_KINDS[noise.kind].relabel(data)
    return {
        client: relabel(own, shares[client], client in mislabeled, numbers(data.seed, "labels", client))
        for client, own in rows.items()
    }


def _wrong_shares(noise: NoiseSettings, clients: Sequence[str], mislabeled: Sequence[str]) -> dict[str, float]:
    """The share of each client's labels that is to become wrong."""
    rates = noise.rates
    if len(rates) not in (1, len(mislabeled)):
        needed = f"one share for all {len(mislabeled)} mislabeled clients, or one for each"
        raise DataError(f"noise.labels must give {needed}, got {len(rates)}")
    each = rates if len(rates) == len(mislabeled) else rates * len(mislabeled)
    return dict.fromkeys(clients, noise.others_labels) | dict(zip(mislabeled, each, strict=True))


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
    replace = NOISE_KINDS[kind].replace
    assert replace is not None, f"{kind} looks at more than labels"
    return replace_share(np.array(labels, dtype=np.int64), classes, share, rng, mode, replace)


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
