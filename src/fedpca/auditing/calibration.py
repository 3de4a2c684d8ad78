"""How plausible the labels of the reference clients are: what single rows are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from fedpca.auditing.summary import BINS, Summary, Table, bin_of
from fedpca.errors import WireError

MIN_OF_CLASS = 100  # labels of a class at the reference clients, to compare a label of that class with them alone


@dataclass(frozen=True)
class Calibration:
    """Histograms of the reference clients' label scores: of each class, and of all (the last row)."""

    scores: Table  # (classes + 1, BINS)

    def to_tables(self) -> dict[str, list[float]]:
        """Lists of floats by name, to be sent."""
        return {"calibration": [value for row in self.scores for value in row]}

    @staticmethod
    def from_tables(tables: Mapping[str, Sequence[float]], classes: int) -> Calibration:
        """What a server sent."""
        values = [float(value) for value in tables.get("calibration", ())]
        if len(values) != (classes + 1) * BINS or not all(isfinite(value) and value >= 0 for value in values):
            raise WireError(f"a calibration must have {classes + 1} x {BINS} counts from 0 on, got {len(values)}")
        return Calibration(tuple(tuple(values[at : at + BINS]) for at in range(0, len(values), BINS)))


def pooled_scores(summaries: Sequence[Summary]) -> Calibration:
    """The histograms of several clients added up; those of clients that tell no classes count for all alone."""
    classes = summaries[0].classes
    rows = [[0.0] * BINS for _ in range(classes + 1)]
    for own in summaries:
        for at, row in enumerate(own.scores):
            for bin, count in enumerate(row):
                rows[classes][bin] += count
                if len(own.scores) == classes:
                    rows[at][bin] += count
    return Calibration(tuple(map(tuple, rows)))


def p_values(scores: Tensor, labels: Tensor, calibration: Calibration) -> Tensor:
    """How rarely a label of the same class at the reference clients is as implausible: (1 + fewer or as) / (1 + all).

    Classes of which the reference has too few labels to tell are compared with all of them together.
    """
    table = torch.tensor(calibration.scores, dtype=torch.float64)
    totals, bins = table.sum(dim=1), bin_of(scores)
    rows = torch.where(totals[labels] >= MIN_OF_CLASS, labels, torch.full_like(labels, len(table) - 1))
    below = table.cumsum(dim=1)[rows, bins]
    return (1 + below) / (1 + totals[rows])
