"""How scattered a client's predictions are, and its labels corrected where the global model is sure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpca.core import LABELS, Params, Report, Samples, Site
from fedpca.parts.client.report import all_logits
from fedpca.parts.client.select import everything, nothing
from fedpca.parts.mixture import in_upper_group
from fedpca.screening import Bound, Claims

MOST = 1e3  # local dimensions above this count as this: ties among saturated predictions give millions


TINY = 1e-6


ROWS = 1024  # of a distance matrix at a time


@dataclass(frozen=True)
class Scatter:
    """`lid`: mean local intrinsic dimension of the own new model's predictions; the client keeps its losses."""

    neighbours: int

    @property
    def claims(self) -> Claims:
        """A dimension."""
        return Claims({"lid": Bound(0, MOST, usual=(0, 20))})

    def __call__(self, site: Site, params: Params) -> Report:
        """The number; each sample's loss goes into the memory, for `CorrectWorst` to use in the next round."""
        logits = all_logits(site).double()
        site.memory["losses"] = cross_entropy(logits, site.y, reduction="none")
        return {"lid": local_dimensions(logits.softmax(dim=1), self.neighbours).mean().item()}


def local_dimensions(points: Tensor, neighbours: int) -> Tensor:
    """Local intrinsic dimension (N,) around each point (N, D): -k / sum_j ln(d_j / d_k) over its k nearest others.

    In double precision; points at distance zero do not count as neighbours; between 0 and `MOST`. After Amsaleg et al.
    2015. 0 for a point without neighbours.
    """
    points = points.double()
    count = min(neighbours, len(points) - 1)
    if count < 1:
        return torch.zeros(len(points), dtype=torch.float64)
    found = []
    for rows in torch.split(points, ROWS):
        apart = torch.cdist(rows, points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = torch.where(apart > 0, apart, torch.inf).topk(count, dim=1, largest=False).values  # ascending
        there = nearest.isfinite()
        farthest = torch.where(there, nearest, 0.0).amax(dim=1, keepdim=True)
        logs = torch.where(there, nearest / (farthest + TINY), 1.0).log().sum(dim=1)
        found.append(-there.sum(dim=1) / (logs + TINY))
    values = torch.cat(found)
    return torch.where(values < 0, MOST, values).clamp(0, MOST)  # a sum of equal distances may end above zero


@dataclass(frozen=True)
class CorrectWorst:
    """`noise`: estimated share of wrong labels; a client judged mislabeled corrects some of them as it is asked.

    The share is that of the samples in the upper of two groups of losses under the client's own last model. Candidates
    are that many samples times `share`, those of highest loss; corrected are those that the global model is sure about.
    """

    share: float
    confidence: float

    @property
    def claims(self) -> Claims:
        """A share; who has not trained since it was asked last says none."""
        return Claims({"noise": Bound(0, 1, needed="never")})

    def __call__(self, site: Site) -> Report:
        """The number; nothing where the client has not trained since it was asked last."""
        losses = site.memory.pop("losses", None)
        if losses is None:
            return {}
        if site.order.verdict.group != "mislabeled":
            return {"noise": 0.0}
        noise = float(in_upper_group(losses.double().numpy()).mean())
        relabel(site, worst(losses, noise * self.share), self.confidence)
        return {"noise": noise}


def worst(losses: Tensor, share: float) -> Tensor:
    """Rows of the highest losses, this share of all, rounded down."""
    return losses.argsort(descending=True, stable=True)[: int(len(losses) * share + 1e-9)]


@dataclass(frozen=True)
class CorrectConfident:
    """Nothing to report; a client judged mislabeled corrects every label that the global model is sure about."""

    confidence: float

    @property
    def claims(self) -> Claims:
        """Nothing."""
        return Claims()

    def __call__(self, site: Site) -> Report:
        if site.order.verdict.group == "mislabeled":
            relabel(site, torch.arange(len(site.y)), self.confidence)
        return {}


def relabel(site: Site, rows: Tensor, confidence: float) -> None:
    """Gives these rows their predicted labels where the model's confidence is above this; the client keeps them."""
    logits = all_logits(site)
    sure, predicted = logits.double().softmax(dim=1).max(dim=1)
    rows = rows[sure[rows] > confidence]
    site.memory[LABELS] = site.y.index_put((rows,), predicted[rows])


def unless_resting(site: Site) -> Samples:
    """All samples, or nothing if the client's note says that it rests."""
    return nothing() if site.order.verdict.notes.get("rests") else everything(site)
