"""Worst, average and spread over the test groups, as the paper's tables define them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """A mean over rounds and seeds, and the population deviation around it."""

    mean: float
    std: float


@dataclass(frozen=True)
class Headline:
    """One metric over the test groups."""

    worst: Spread  # of the group with the smallest mean: not the mean of each round's smallest
    average: Spread  # over groups
    std: Spread  # over groups, within each round


def headline(groups: Mapping[str, Sequence[float]]) -> Headline:
    """The three figures of one metric; each group lists its value in the same rounds and seeds."""
    table = np.array([groups[name] for name in groups], dtype=np.float64)  # (groups, rounds x seeds)
    worst = table[int(np.argmin(table.mean(axis=1)))]
    return Headline(spread(worst), spread(table.mean(axis=0)), spread(table.std(axis=0)))


def spread(values: Sequence[float] | np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Spread:
    """Mean and population deviation."""
    array = np.asarray(values, dtype=np.float64)
    return Spread(float(array.mean()), float(array.std()))


def fairness_robustness(shares: Sequence[Mapping[str, float]]) -> float:
    """w_r (1 - w_m), averaged over rounds: what rare clients weigh, times what the mislabeled do not."""
    return float(np.mean([share["rare"] * (1 - share["mislabeled"]) for share in shares]))
