"""Mislabeled clients found once by their losses class by class, then weighed by their distance from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import exp

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpca.core import ClientId, Diagnosis, Outcome, Params, Report, Server, When
from fedpca.parts.mixture import MAX_STEPS, RIDGE, fit
from fedpca.parts.server.diagnose import remember
from fedpca.parts.server.identify import scaled
from fedpca.parts.server.robust import BLOCK, UpdateCollection

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HighClassLosses:
    """Mislabeled is the upper of two groups of clients by class losses; the most frequent answer of several fits."""

    fits: int

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """Groups where class losses are reported, else the opinions as they are."""
        known = dict(remember(diagnosis, reports, when))
        usable = comparable_reports(reports)
        if usable:
            noisy = upper_rows(loss_table(usable), self.fits)
            for client, high in zip(usable, noisy, strict=True):
                group = "mislabeled" if high else "common"
                known[client] = replace(known[client], group=group, suspicion=float(high))  # type: ignore[arg-type]
        return known


def comparable_reports(reports: Mapping[ClientId, Report]) -> dict[ClientId, Report]:
    """The reports with losses and counts of as many classes as most have."""
    widths = {
        client: len(losses)
        for client, report in reports.items()
        if isinstance(losses := report.get("class_loss"), list)
        and isinstance(counts := report.get("class_count"), list)
        and len(losses) == len(counts) > 0
    }
    usual = Counter(widths.values()).most_common(1)
    return {client: reports[client] for client, width in widths.items() if width == usual[0][0]}


def loss_table(reports: Mapping[ClientId, Report]) -> Floats:
    """Losses per client and class, each class from 0 to 1; who has none of a class counts as the best at it."""
    losses = np.array([report["class_loss"] for report in reports.values()], dtype=np.float64)
    there = np.array([report["class_count"] for report in reports.values()]) > 0
    best = np.where(there, losses, np.inf).min(axis=0)
    return scaled(np.where(there, losses, np.where(np.isfinite(best), best, 0.0)))


def upper_rows(table: Floats, fits: int) -> list[bool]:
    """Which rows are in the component of larger mean, most often among the fits; none if all rows are alike."""
    if len(np.unique(table, axis=0)) < 2:
        return [False] * len(table)
    mixtures = fit(table, 2, fits, "full", RIDGE, MAX_STEPS)
    upper = mixtures.means.sum(axis=2).argmax(axis=1)  # (S,)
    votes = mixtures.responsibilities.argmax(axis=2) == upper[:, None]  # (S, K)
    return list(Counter(tuple(vote.tolist()) for vote in votes).most_common(1)[0][0])


def by_distance(server: Server) -> DistanceFold:
    """The mean with weights N exp(-D), D a mislabeled client's distance to the nearest other one, over the largest."""
    mislabeled = {client for client, verdict in server.diagnosis.items() if verdict.group == "mislabeled"}
    return DistanceFold(server.params, mislabeled)


class DistanceFold(UpdateCollection):
    """States waiting for their distances."""

    def __init__(self, start: Params, mislabeled: set[ClientId]) -> None:
        super().__init__(start)
        self.mislabeled = mislabeled

    def finish(self) -> Outcome:
        """The mean and its weights; by size alone if nobody, or everybody, is mislabeled."""
        if not self.states:
            return Outcome(self.start, {})
        noisy = [client for client in self.states if client in self.mislabeled]
        clean = [client for client in self.states if client not in self.mislabeled]
        apart = dict(zip(noisy, self._nearest(noisy, clean), strict=True)) if noisy and clean else {}
        weights = distance_weights(self.sizes, apart)
        return Outcome(self.mean(torch.tensor(list(weights.values()), dtype=torch.float64)), weights)

    def _nearest(self, some: list[ClientId], others: list[ClientId]) -> list[float]:
        """How far each of some is from the nearest of the others: the sum over tensors of the distances in each."""
        total = torch.zeros(len(some), len(others), dtype=torch.float64)
        for squares in self._squares(some, others):
            total += squares.sqrt()
        nearest: list[float] = total.amin(dim=1).tolist()
        return nearest

    def _squares(self, some: list[ClientId], others: list[ClientId]) -> Iterator[Tensor]:
        """Per tensor of weights and buffers the squared distances (some, others), block by block."""
        known = len(self.start.weights) + len(self.start.buffers)
        if sum(self.start.lengths) != known:
            raise ValueError(
                f"the tensors' lengths sum to {sum(self.start.lengths)}, but the state has {known} entries: "
                "start from `params_of`, which knows them"
            )
        for vector, begin, end in self._tensors():
            blocks = [slice(at, min(at + BLOCK, end)) for at in range(begin, end, BLOCK)]
            yield torch.stack([self._apart(vector, block, some, others) for block in blocks]).sum(dim=0)

    def _tensors(self) -> Iterator[tuple[str, int, int]]:
        """The vector that each tensor lies in, its first place there, and the place after its last."""
        begin, vector = 0, "weights"
        for length in filter(None, self.start.lengths):
            if vector == "weights" and begin == len(self.start.weights):
                begin, vector = 0, "buffers"
            yield vector, begin, begin + length
            begin += length

    def _apart(self, vector: str, place: slice, some: list[ClientId], others: list[ClientId]) -> Tensor:
        one, two = (
            torch.stack([getattr(self.states[client], vector)[place] for client in clients]).double()
            for clients in (some, others)
        )
        return torch.cdist(one, two, compute_mode="donot_use_mm_for_euclid_dist").square()


def distance_weights(sizes: Mapping[ClientId, int], distances: Mapping[ClientId, float]) -> dict[ClientId, float]:
    """N exp(-D / max D) over their sum; who has no distance has D = 0."""
    farthest = max(distances.values(), default=0.0) or 1.0
    counts = {client: size * exp(-distances.get(client, 0.0) / farthest) for client, size in sizes.items()}
    total = sum(counts.values())
    return {client: count / total for client, count in counts.items()}
