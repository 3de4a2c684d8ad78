"""How well a client's labels go with the model's predictions: numbers that tell wrong labels from rare images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedpca.parts.server.identify import FLOOR

PASSES = 8  # of adapting predictions to class shares; more change the third digit of a slope


def label_slopes(probs: Tensor, labels: Tensor, owners: Tensor, sizes: Sequence[int]) -> list[dict[str, float]]:
    """How far each client's labels follow the model's probabilities: `slope` of one on the other; `slope_error`.

    sum_c cov(p_c, [y = c]) / sum_c var(p_c): 1 if labels are drawn as the model says, more if it is less sure than it
    could be, 0 if they are unrelated. Replacing a share s of the labels by random ones multiplies it by 1 - s, however
    sure the model is: only ratios of clients' slopes are used. Nothing if all images get the same probabilities.
    """
    count, hot = torch.tensor(sizes).double(), torch.zeros_like(probs).scatter_(1, labels.unsqueeze(1), 1.0)
    away = probs - (summed(probs, owners, len(sizes)) / count.unsqueeze(1))[owners]  # (samples, classes)
    marks = hot - (summed(hot, owners, len(sizes)) / count.unsqueeze(1))[owners]
    follows, spread = (away * marks).sum(dim=1), away.square().sum(dim=1)  # (samples,), (samples,)
    totals = summed(spread, owners, len(sizes))
    slopes = summed(follows, owners, len(sizes)) / totals.clamp_min(FLOOR)
    squares = summed((follows - slopes[owners] * spread).square(), owners, len(sizes))
    errors = squares.sqrt() / totals.clamp_min(FLOOR)
    return [
        {"slope": slope, "slope_error": error} if total >= FLOOR else {}
        for slope, error, total in zip(slopes.tolist(), errors.tolist(), totals.tolist(), strict=True)
    ]


def label_evidence(probs: Tensor, labels: Tensor, owners: Tensor, sizes: Sequence[int]) -> list[dict[str, float]]:
    """What each client's labels say beside predictions that were adapted to its own class shares.

    `slope` and `slope_error` as above; `variation`: sum_c var(p_c), how much the predictions differ between images;
    `agreement`: the share of labels that are the likeliest class, with its error; `disagreement`: the largest share
    that may be wrong, by the predictions as they are or as adapted; `classes`.
    """
    adapted, count = adapt_to_shares(probs, labels, owners, sizes), torch.tensor(sizes).double()
    means = summed(adapted, owners, len(sizes)) / count.unsqueeze(1)
    variations = summed((adapted - means[owners]).square().sum(dim=1), owners, len(sizes)) / count
    hits = [summed((p.argmax(dim=1) == labels).double(), owners, len(sizes)) for p in (adapted, probs)]
    agreement, plain = (own / count for own in hits)
    near = (hits[0] + 1) / (count + 2)  # so that nobody's error is zero
    errors = (near * (1 - near) / count).sqrt()
    columns = (variations, agreement, errors, 1 - torch.minimum(agreement, plain))
    names = ("variation", "agreement", "agreement_error", "disagreement")
    few = (count / (count - 3).clamp_min(1)).sqrt().tolist()  # the error of a slope through few points is larger
    return [
        {**_with_error(slope, factor), **dict(zip(names, own, strict=True)), "classes": float(probs.shape[1])}
        for slope, factor, own in zip(
            label_slopes(adapted, labels, owners, sizes), few, torch.stack(columns, dim=1).tolist(), strict=True
        )
    ]


def _with_error(slope: dict[str, float], factor: float) -> dict[str, float]:
    return {**slope, "slope_error": factor * slope["slope_error"]} if slope else {}


def adapt_to_shares(probs: Tensor, labels: Tensor, owners: Tensor, sizes: Sequence[int]) -> Tensor:
    """Probabilities times a factor for each class of each client, so that their means are its shares of the labels.

    A client that has mostly one class is not what the model expects: without this its right labels look wrong.
    """
    clients, classes = len(sizes), probs.shape[1]
    counts = torch.bincount(owners * classes + labels, minlength=clients * classes).double().view(clients, classes)
    size = torch.tensor(sizes).double().unsqueeze(1)
    shares, factors = (counts + 1) / (size + classes), torch.ones(clients, classes, dtype=probs.dtype)
    for _ in range(PASSES):
        factors *= shares / (summed(_scaled(probs, factors, owners), owners, clients) / size).clamp_min(1e-6)
    return _scaled(probs, factors, owners)


def _scaled(probs: Tensor, factors: Tensor, owners: Tensor) -> Tensor:
    scaled = probs * factors[owners]
    return scaled / scaled.sum(dim=1, keepdim=True)


def summed(values: Tensor, owners: Tensor, clients: int) -> Tensor:
    """The sum of each client's rows."""
    return torch.zeros(clients, *values.shape[1:], dtype=torch.float64).index_add_(0, owners, values)


def label_slope(probs: Tensor, labels: Tensor) -> dict[str, float]:
    """The slope of one client."""
    return label_slopes(probs, labels, torch.zeros(len(labels), dtype=torch.int64), [len(labels)])[0]
