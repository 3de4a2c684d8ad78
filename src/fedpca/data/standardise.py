"""A table as numbers for a model, by sums that clients tell and the server adds up; no row leaves its client.

A number is standardised by the mean and deviation over all clients. A category becomes a column for each level that any
client has. A missing value becomes the mean, or no level, and a column of 0 and 1 says that it was missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpca.data.columns import Column, Values
from fedpca.errors import SettingsError
from fedpca.models.registry import MODELS
from fedpca.settings.experiment import Experiment

ROUNDING = 1e-14  # a variance below this share of the mean square cannot be told from rounding


@dataclass(frozen=True)
class ColumnSums:
    """All that a client tells about its table, column by column."""

    rows: int
    counts: Values  # (K,) values that are there
    sums: Values  # (K,) of these; 0 for a category
    squares: Values  # (K,) their squares, summed; 0 for a category
    levels: tuple[frozenset[str], ...]  # that occur; none for a number


def values_of(images: NDArray[np.generic]) -> Values:
    """Rows (N, K) of a table that stands in place of images."""
    return images.astype(np.float64).reshape(len(images), -1)


def sums_of(values: Values, columns: Sequence[Column]) -> ColumnSums:
    """What one client tells: of its own rows (n, K) alone."""
    known = ~np.isnan(values)
    numbers = np.where(known & np.array([not column.levels for column in columns]), values, 0.0)
    levels = tuple(_levels_in(values[:, k], column) for k, column in enumerate(columns))
    return ColumnSums(len(values), known.sum(axis=0) * 1.0, numbers.sum(axis=0), np.square(numbers).sum(axis=0), levels)


def _levels_in(values: Values, column: Column) -> frozenset[str]:
    codes = np.unique(values[~np.isnan(values)]) if column.levels else ()
    return frozenset(column.levels[int(code)] for code in codes)


def add_sums(clients: Sequence[ColumnSums]) -> ColumnSums:
    """What the server makes of them: the sums over all clients, and the levels that any of them has."""
    counts, sums, squares = (
        np.sum([getattr(own, name) for own in clients], axis=0) for name in ("counts", "sums", "squares")
    )
    levels = tuple(frozenset[str]().union(*own) for own in zip(*(own.levels for own in clients), strict=True))
    return ColumnSums(sum(own.rows for own in clients), counts, sums, squares, levels)


@dataclass(frozen=True)
class EncodedColumn:
    """How a column goes into the model; all clients use the same."""

    name: str
    mean: float
    deviation: float
    levels: tuple[str, ...]
    marks_missing: bool  # whether a further column says where there is no value

    @property
    def names(self) -> list[str]:
        """The inputs of the model that it becomes."""
        own = [f"{self.name}={level}" for level in self.levels] or [self.name]
        return [*own, f"{self.name} missing"] if self.marks_missing else own

    def encode(self, values: Values, column: Column) -> Values:
        """Values (N,) as inputs (N, width); a level that no client trains on counts as missing.

        A real site's column has the site's own levels, and may lack some of those that others have.
        """
        if self.levels:
            codes = [column.levels.index(level) if level in column.levels else -1 for level in self.levels]
            inputs = (values[:, None] == np.array(codes)).astype(np.float64)
            missing = inputs.sum(axis=1) == 0
        else:
            missing = np.isnan(values) | bool(column.levels)
            inputs = ((np.where(missing, self.mean, values) - self.mean) / self.deviation)[:, None]
        return np.column_stack([inputs, missing]) if self.marks_missing else inputs


def encoding_of(names: Sequence[str], total: ColumnSums) -> tuple[EncodedColumn, ...]:
    """How the columns of these names go into a model, from nothing but the sums over all clients."""
    counts = np.maximum(total.counts, 1.0)
    means, mean_squares = total.sums / counts, total.squares / counts
    variances = np.maximum(mean_squares - np.square(means), ROUNDING * mean_squares)
    deviations = np.sqrt(np.where(variances > 0, variances, 1.0))
    return tuple(
        EncodedColumn(name, mean, deviation, tuple(sorted(levels)), count < total.rows)
        for name, mean, deviation, levels, count in zip(
            names, means.tolist(), deviations.tolist(), total.levels, total.counts.tolist(), strict=True
        )
    )


def encode(encoding: Sequence[EncodedColumn], columns: Sequence[Column], values: Values) -> NDArray[np.float32]:
    """Rows (N, K) as what goes into the model: (N, F, 1, 1)."""
    inputs = [own.encode(values[:, k], column) for k, (own, column) in enumerate(zip(encoding, columns, strict=True))]
    return np.concatenate(inputs, axis=1).astype(np.float32)[:, :, None, None]


def require_table_settings(experiment: Experiment, name: str) -> None:
    """Stops where the settings ask for something that only images have."""
    rare, augment, model = experiment.rare.share, experiment.training.augment, experiment.model
    if rare > 0:
        remedy = 'set it to 0; natural silos (data.split = "column") need none'
        raise _for_images(f"rare.share = {rare:g}", "rare by corruption is for images", name, remedy)
    if augment != "none":
        raise _for_images(f"training.augment = {augment!r}", "augmentation is for images", name, 'set it to "none"')
    if model.backbone:
        raise _for_images(f"model.backbone = {model.backbone!r}", "backbones are for images", name, "leave it out")
    if model.name in MODELS and not MODELS[model.name].takes_features:
        takers = ", ".join(own for own, entry in MODELS.items() if entry.takes_features)
        remedy = f"set it to one of {takers}, or to a model of your own"
        raise _for_images(f"model.name = {model.name!r}", "this model is for images", name, remedy)


def _for_images(setting: str, why: str, name: str, remedy: str) -> SettingsError:
    return SettingsError(f"{setting}: {why}, and {name} is a table of numbers: {remedy}")
