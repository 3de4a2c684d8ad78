"""How well a client's labels go with the model's predictions: numbers that tell wrong labels from rare images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedpca.parts.server.identify import FLOOR
from fedpca.screening import Bound, says

PASSES = 8  # of adapting predictions to class shares; more change the third digit of a slope

# both are over the variation of predictions, which may be tiny; where all predictions are alike there are none
SLOPE = Bound(-1e6, 1e6, needed="never", usual=(-2, 6), absent=1.0)
SLOPE_ERROR = Bound(0, 1e15, needed="never", usual=(0, 2), absent=2.0)
SHARE = Bound(0, 1)


@dataclass(frozen=True)
class Labelled:
    """Predictions and labels of several clients side by side, filled up with zeros to the largest of them.

    Images lie last in memory and classes before them: sums over few classes are four times as fast that way.
    """

    probs: Tensor  # (clients, classes, images)
    marks: Tensor  # the same shape: 1 at the label
    is_image: Tensor  # (clients, 1, images): 0 where it is filled up
    sizes: Tensor  # (clients,)

    def mean(self, values: Tensor) -> Tensor:
        """The mean of each client's images, of values that are 0 where it is filled up."""
        return values.sum(dim=-1) / self.sizes.view(-1, *[1] * (values.dim() - 2))


def side_by_side(probs: Tensor, labels: Tensor, owners: Tensor, sizes: Sequence[int]) -> Labelled:
    """Of probabilities (classes, N) and labels (N,) of clients, one after the other."""
    count = torch.tensor(sizes)
    place = torch.arange(len(labels)) - (count.cumsum(0) - count)[owners]
    shape = len(sizes), len(probs), max(sizes)
    filled, marks = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    filled[owners, :, place] = probs.T.double()
    marks[owners, labels, place] = 1.0
    return Labelled(filled, marks, marks.sum(dim=1, keepdim=True), count.double())


@says(slope=SLOPE, slope_error=SLOPE_ERROR)
def label_slopes(probs: Tensor, labels: Tensor, owners: Tensor, sizes: Sequence[int]) -> list[dict[str, float]]:
    """How far each client's labels follow the model's probabilities: `slope` of one on the other; `slope_error`.

    sum_c cov(p_c, [y = c]) / sum_c var(p_c): 1 if labels are drawn as the model says, more if it is less sure than it
    could be, 0 if they are unrelated. Replacing a share s of the labels by random ones multiplies it by 1 - s, however
    sure the model is: only ratios of clients' slopes are used. Nothing if all images get the same probabilities.
    """
    return _slopes(side_by_side(probs, labels, owners, sizes))[0]


def _slopes(given: Labelled) -> tuple[list[dict[str, float]], Tensor]:
    """Each client's slope with its error, and how much its predictions vary."""
    away = (given.probs - given.mean(given.probs).unsqueeze(2)) * given.is_image
    follows = (away * (given.marks - given.mean(given.marks).unsqueeze(2))).sum(dim=1)  # (clients, images)
    spread = away.square().sum(dim=1)
    totals = spread.sum(dim=1)
    slopes = follows.sum(dim=1) / totals.clamp_min(FLOOR)
    errors = (follows - slopes.unsqueeze(1) * spread).square().sum(dim=1).sqrt() / totals.clamp_min(FLOOR)
    found = [
        {"slope": slope, "slope_error": error} if total >= FLOOR else {}
        for slope, error, total in zip(slopes.tolist(), errors.tolist(), totals.tolist(), strict=True)
    ]
    return found, totals / given.sizes


@says(
    slope=SLOPE,
    slope_error=SLOPE_ERROR,
    variation=SHARE,
    agreement=SHARE,
    agreement_error=SHARE,
    disagreement=SHARE,
    classes=Bound(2, 1e6, public=True),
)
def label_evidence(probs: Tensor, labels: Tensor, owners: Tensor, sizes: Sequence[int]) -> list[dict[str, float]]:
    """What each client's labels say beside predictions that were adapted to its own class shares.

    `slope` and `slope_error` as above; `variation`: sum_c var(p_c), how much the predictions differ between images;
    `agreement`: the share of labels that are the likeliest class, with its error; `disagreement`: the largest share
    that may be wrong, by the predictions as they are or as adapted; `classes`.
    """
    given = side_by_side(probs, labels, owners, sizes)
    adapted = adapt_to_shares(given)
    (slopes, variations), count = _slopes(adapted), given.sizes
    agreement, plain = _agreement(adapted), _agreement(given)
    near = (agreement * count + 1) / (count + 2)  # so that nobody's error is zero
    columns = (variations, agreement, (near * (1 - near) / count).sqrt(), 1 - torch.minimum(agreement, plain))
    names = ("variation", "agreement", "agreement_error", "disagreement")
    degrees = (count - 3).clamp_min(1)  # the error of a slope through few points: larger, and Student's, to first order
    few = ((count / degrees).sqrt() * (1 + 2 / degrees)).tolist()
    return [
        {**_with_error(slope, factor), **dict(zip(names, own, strict=True)), "classes": float(len(probs))}
        for slope, factor, own in zip(slopes, few, torch.stack(columns, dim=1).tolist(), strict=True)
    ]


def _agreement(given: Labelled) -> Tensor:
    """The share of each client's labels that no class is likelier than."""
    at_label = (given.probs * given.marks).sum(dim=1)  # (clients, images)
    return given.mean((at_label >= given.probs.amax(dim=1)) * given.is_image.squeeze(1))


def _with_error(slope: dict[str, float], factor: float) -> dict[str, float]:
    return {**slope, "slope_error": factor * slope["slope_error"]} if slope else {}


def adapt_to_shares(given: Labelled) -> Labelled:
    """Probabilities times a factor for each class of each client, so that their means are its shares of the labels.

    A client that has mostly one class is not what the model expects: without this its right labels look wrong.
    """
    clients, classes, _ = given.probs.shape
    shares = (given.marks.sum(dim=2) + 1) / (given.sizes.unsqueeze(1) + classes)
    factors = torch.ones(clients, classes, dtype=torch.float64)
    for _ in range(PASSES):
        each = given.is_image / _totals(given, factors)  # (clients, 1, images)
        means = factors * torch.bmm(given.probs, each.transpose(1, 2)).squeeze(2) / given.sizes.unsqueeze(1)
        factors = factors * shares / means.clamp_min(1e-6)
    return replace(given, probs=given.probs * factors.unsqueeze(2) / _totals(given, factors))


def _totals(given: Labelled, factors: Tensor) -> Tensor:
    """The sum over the classes of each image's probabilities times their factors; 1 where it is filled up."""
    return torch.bmm(factors.unsqueeze(1), given.probs) + (1 - given.is_image)


def label_slope(probs: Tensor, labels: Tensor) -> dict[str, float]:
    """The slope of one client, of probabilities (N, classes)."""
    return label_slopes(probs.T, labels, torch.zeros(len(labels), dtype=torch.int64), [len(labels)])[0]
