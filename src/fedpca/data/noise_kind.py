"""What a kind of label noise is: what it may look at, and how it gives a client its labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpca.errors import DataError
from fedpca.settings.base import rounded
from fedpca.settings.experiment import NoiseSettings

if TYPE_CHECKING:
    from fedpca.data.cache import Part

Labels = NDArray[np.int64]
Rows = NDArray[np.int64]
Look = Callable[[NDArray[np.generic]], NDArray[np.generic]]  # images (N, C, H, W) to features (N, d, 1, 1)
Replace = Callable[[Labels, int, bool, np.random.Generator], Labels]  # labels, classes, whether all must be wrong


@dataclass(frozen=True)
class NoiseData:
    """What a kind of label noise may look at: the training rows that are used, and where they are from."""

    settings: NoiseSettings
    images: NDArray[np.generic]  # (N, C, H, W); of a table its standardised numbers
    labels: Labels  # (N,), as the data have them
    classes: tuple[str, ...]
    seed: int  # data.seed
    source: Part  # the data's whole training part
    rows: Rows  # (N,): which of its rows are used
    data_dir: Path | None = None  # the folder of datasets, where the call names one
    look: Look | None = None  # features of images, where the clients train on those


class Relabel(Protocol):
    """Gives a client its labels, of which that share is wrong."""

    def __call__(self, rows: Rows, share: float, mislabeled: bool, rng: np.random.Generator) -> Labels:
        """New labels of these rows of `NoiseData`; `mislabeled`: whether the client is one of those."""


def _check_nothing(noise: NoiseSettings) -> None:
    pass


@dataclass(frozen=True)
class NoiseKind:
    """What labels become when they are made wrong.

    Most kinds are a `replace`, which sees the labels that become wrong, drawn at random. One that must see more, such
    as the images, or that chooses itself which labels become wrong, is a `start` in its place.

    >>> from fedpca import NoiseKind
    >>> mirror = NoiseKind("mirror", "the class from the other end", lambda y, classes, exclusive, rng: classes - 1 - y)
    >>> mirror.replace(3, 10, True, None)
    6
    """

    name: str
    summary: str
    replace: Replace | None = None
    start: Callable[[NoiseData], Relabel] | None = None  # called once for a federation
    uses: tuple[str, ...] = ()  # keys of `NoiseSettings` that only some kinds use
    check: Callable[[NoiseSettings], None] = _check_nothing  # refuses settings that it cannot use

    def relabel(self, data: NoiseData) -> Relabel:
        """What gives these data's clients their labels."""
        if self.start is not None:
            return self.start(data)
        assert self.replace is not None, f"{self.name}: a NoiseKind needs replace or start"
        return replacing(data, self.replace)


def replacing(data: NoiseData, replace: Replace) -> Relabel:
    """Labels of which a share, drawn at random, were replaced."""

    def relabel(rows: Rows, share: float, mislabeled: bool, rng: np.random.Generator) -> Labels:
        given = data.labels[rows]
        return replace_share(given, len(data.classes), share, rng, data.settings.mode, replace) if share else given

    return relabel


def replace_share(
    labels: Labels, classes: int, share: float, rng: np.random.Generator, mode: str, replace: Replace
) -> Labels:
    """A copy of the labels in which a share, drawn at random, were replaced."""
    require_two_classes(classes)
    given = np.array(labels, dtype=np.int64)
    picked = _pick_rows(len(given), share, rng, mode)
    given[picked] = replace(given[picked], classes, mode == "exclusive", rng)
    return given


def require_two_classes(classes: int) -> None:
    """Stops where there is no wrong class."""
    if classes < 2:
        raise DataError(f"wrong labels need at least two classes, got {classes}: use other data or no noise")


def _pick_rows(count: int, share: float, rng: np.random.Generator, mode: str) -> Rows:
    """Rows whose labels are replaced."""
    if mode == "inclusive":
        return np.flatnonzero(rng.random(count) < share).astype(np.int64)
    return rng.choice(count, rounded(share * count), replace=False).astype(np.int64)
