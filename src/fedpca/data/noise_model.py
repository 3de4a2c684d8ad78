"""Wrong labels like people's: classes that are taken for each other, and images that are hard to tell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpca.data.noise_kind import Labels, NoiseData, Relabel, Rows, replacing, require_two_classes
from fedpca.errors import DataError, SettingsError
from fedpca.settings.base import rounded
from fedpca.settings.experiment import NoiseSettings

Shares = NDArray[np.float64]


def check_confusion(noise: NoiseSettings) -> None:
    """Refuses settings without a matrix, or with one that is not square or leaves a class without a wrong one."""
    matrix = noise.matrix
    if matrix is None:
        raise SettingsError(
            'noise.kind = "confusion" needs noise.matrix: a list with a row for each class, or "model", to estimate it'
        )
    for number, row in enumerate(() if isinstance(matrix, str) else matrix):
        if len(row) != len(matrix):
            raise SettingsError(
                f"noise.matrix must be square, but has {len(matrix)} rows, and row {number} has {len(row)} numbers"
            )
        if sum(row) - row[number] <= 0:
            raise SettingsError(
                f"noise.matrix: row {number} has nothing but its diagonal, which is not used: "
                f"say what class {number} is taken for"
            )


def confuse(data: NoiseData) -> Relabel:
    """Labels of which a share, drawn at random, became the class that theirs is taken for."""
    chances = _confusion(data)

    def replace(labels: Labels, classes: int, exclusive: bool, rng: np.random.Generator) -> Labels:
        return _draw_each(chances[labels], rng)

    return replacing(data, replace)


def doubt(data: NoiseData) -> Relabel:
    """Labels of which a share, more of them where a model doubts them, became what it finds likely in their place."""
    from fedpca.data.doubts import class_probabilities

    require_two_classes(len(data.classes))
    likely = class_probabilities(data)

    def relabel(rows: Rows, share: float, mislabeled: bool, rng: np.random.Generator) -> Labels:
        given, own = data.labels[rows], likely[rows].copy()
        doubts = 1 - own[np.arange(len(rows)), given]
        picked = _pick_doubted(doubts, share, data.settings.mode == "exclusive", rng)
        own[np.arange(len(rows)), given] = 0
        given[picked] = _draw_each(own[picked], rng)
        return given

    return relabel


def _confusion(data: NoiseData) -> Shares:
    """What each class is taken for when it is taken for another, (C, C); the diagonal is 0."""
    count, matrix = len(data.classes), data.settings.matrix
    require_two_classes(count)
    chances = _estimate(data) if matrix == "model" else np.array(matrix, dtype=np.float64)
    if len(chances) != count:
        raise DataError(f"noise.matrix must have a row for each of the {count} classes, got {len(chances)}")
    np.fill_diagonal(chances, 0)
    return chances


def _estimate(data: NoiseData) -> Shares:
    """The mean probability of each class among the images of each; all alike for a class without images."""
    from fedpca.data.doubts import class_probabilities

    likely, labels = class_probabilities(data), range(len(data.classes))
    rows = [likely[data.labels == label] for label in labels]
    return np.array([own.mean(axis=0) if len(own) else np.ones(len(labels)) for own in rows])


def _draw_each(weights: Shares, rng: np.random.Generator) -> Labels:
    """A class for each row, drawn in proportion to the row's weights; never one whose weight is 0."""
    heights = np.cumsum(weights, axis=1)
    heights /= heights[:, -1:]  # the last is 1, which is above every number that is drawn
    drawn: Labels = (heights <= rng.random((len(weights), 1))).sum(axis=1)
    return drawn


def _pick_doubted(doubts: Shares, share: float, exactly: bool, rng: np.random.Generator) -> Rows:
    """Rows, the more likely the greater their doubt: exactly that share of them, or so many on average."""
    count = len(doubts)
    if exactly:
        chances = doubts / doubts.sum()
        return rng.choice(count, rounded(share * count), replace=False, p=chances).astype(np.int64)
    return np.flatnonzero(rng.random(count) < _scaled(doubts, share * count)).astype(np.int64)


def _scaled(doubts: Shares, wanted: float) -> Shares:
    """Probabilities in proportion to the doubts, none above 1, that add up to the wanted number."""
    chances, sure = np.zeros(len(doubts)), np.zeros(len(doubts), dtype=np.bool_)
    while not sure.all():
        chances = np.where(sure, 1.0, doubts * (wanted - sure.sum()) / doubts[~sure].sum())
        above = (chances > 1) & ~sure
        if not above.any():
            break
        sure |= above
    return np.minimum(chances, 1.0)
