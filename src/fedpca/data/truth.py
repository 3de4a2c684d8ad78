"""What is truly so of the clients, as far as anybody knows it; only evaluation may read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpca.core import ClientId, Shard
from fedpca.data.cache import Part
from fedpca.data.known import truth_source
from fedpca.data.labels import class_numbers
from fedpca.errors import DataError
from fedpca.settings.experiment import Experiment

MISLABELED_FROM = 0.25  # share of wrong labels by data.truth_column
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """What nobody in the federation knows; only evaluation may read it."""

    rare: tuple[ClientId, ...]  # whose images the scenario corrupted
    mislabeled: tuple[ClientId, ...] | None  # None: nobody knows who is
    labels: Mapping[ClientId, Tensor]  # the true labels of every client's images; empty if nobody knows them
    wrong_share: Mapping[ClientId, float] = field(default_factory=dict)  # of each client's labels; empty in that case


def truth_of(
    experiment: Experiment,
    true: Labels,
    rows: Mapping[ClientId, Labels],
    shards: Mapping[ClientId, Shard],
    rare: tuple[ClientId, ...],
    flipped: tuple[ClientId, ...],
) -> Truth:
    """The truth about the clients: what the scenario made of labels that are taken as true, or what a column says."""
    source = truth_source(experiment.data, experiment.noise)
    if source == "unknown":
        return Truth(rare, None, {})
    labels = {client: torch.from_numpy(true[own]) for client, own in rows.items()}
    wrong = {client: float((shard.y != labels[client]).double().mean()) for client, shard in shards.items()}
    by_column = tuple(client for client, share in wrong.items() if share >= MISLABELED_FROM)  # however they became so
    return Truth(rare, flipped if source == "assumed" else by_column, labels, wrong)


def true_labels(part: Part, column: str | None, classes: Sequence[str]) -> Labels:
    """The labels as the column of true ones has them; as they are given, without such a column."""
    if column is None:
        return part.labels
    if column not in part.columns:
        there = ", ".join(sorted(part.columns)) or "none"
        raise DataError(f"data.truth_column: the data have no column {column!r}; there are: {there}")
    return class_numbers(part.columns[column].tolist(), classes, "data.truth_column", column)
