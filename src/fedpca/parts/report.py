"""What a client tells the server about its data under the global model: a few numbers from one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpca.core import Report, ReportPart, Site
from fedpca.parts.augment import Augment, unchanged
from fedpca.parts.step import grown

BATCH = (
    128  # rows of a pass without gradients; larger ones leave the cache and take 1.6 times as long with convolutions
)
FLOOR = 1e-12  # of the dispersion before its logarithm: all predictions in one class


def mean_loss(site: Site) -> Report:
    """`loss`: mean cross-entropy of the given labels."""
    logits = torch.cat([logits for _, logits in passes(site)])
    return {"loss": cross_entropy(logits, site.y).item()}


@dataclass(frozen=True)
class Sharpness:
    """`sharpness`: how much the mean loss rises at the worst point within `radius` of the weights, to first order."""

    radius: float = 0.05
    growth: float = 0.0  # the radius grows as in `GapGuided`

    def __call__(self, site: Site) -> Report:
        """The rise, at least 1e-10; the model is left as it was."""
        net, radius = site.net, grown(self.radius, self.growth, site.order)
        assert net.weights.grad is not None
        net.weights.grad.zero_()
        with torch.enable_grad():
            before = _summed_loss(site, backward=True)
        here = net.weights.detach().clone()
        slope = net.weights.grad
        net.weights.data.add_(slope, alpha=radius / (slope.norm().item() + 1e-12))
        after = _summed_loss(site)
        net.weights.data.copy_(here)
        return {"sharpness": max((after - before) / len(site.y), 1e-10)}


def _summed_loss(site: Site, backward: bool = False) -> float:
    total = 0.0
    for rows in torch.split(torch.arange(len(site.y)), BATCH):
        loss = cross_entropy(site.net(site.x[rows]), site.y[rows], reduction="sum")
        if backward:
            loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


@dataclass(frozen=True)
class Joined:
    """The numbers of several reports in one."""

    parts: tuple[ReportPart, ...]

    def __call__(self, site: Site) -> Report:
        """All numbers; of the same name the last one counts."""
        return {key: value for part in self.parts for key, value in part(site).items()}


@dataclass(frozen=True)
class PerformanceAndCapacity:
    """`loss`, `dispersion` and, where asked for, `confidence`, and `slope` with its `slope_error`."""

    per_sample: bool = True  # divide the dispersion by the client's size, so that sizes do not show in it
    denominator: Literal["all", "predicted"] = "all"  # C - 1 with C all classes, or those that are predicted
    confidence: Literal["quantile", "top-mean"] | None = None  # how the threshold for confident samples is read
    informativeness: bool = False  # of the labels: the slope
    augment: Augment = unchanged  # of the images; anything but `unchanged` makes the numbers noisy

    def __call__(self, site: Site) -> Report:
        """The numbers, from one pass in eval mode; `dispersion` alone does not look at labels."""
        features, logits = (torch.cat(parts) for parts in zip(*passes(site, self.augment), strict=True))
        predicted, share = logits.argmax(dim=1), site.order.round / site.order.rounds
        report: dict[str, float | list[float]] = {
            "loss": cross_entropy(logits, site.y).item(),
            "dispersion": dispersion(features, predicted, logits.shape[1], self.per_sample, self.denominator),
        }
        if self.confidence or self.informativeness:
            probs = logits.double().softmax(dim=1)
            agreeing = probs.amax(dim=1)[predicted == site.y]
            if self.confidence and len(agreeing):
                report["confidence"] = confident_share(agreeing, share, self.confidence)
            if self.informativeness:
                report |= label_slope(probs, site.y)
        return report


def passes(site: Site, augment: Augment = unchanged) -> Iterator[tuple[Tensor, Tensor]]:
    """Features (n, d) and logits (n, classes) of all the client's images, in large batches."""
    for rows in torch.split(torch.arange(len(site.y)), BATCH):
        yield site.net.features(augment(site.x[rows], site.rng))


def dispersion(
    features: Tensor, predicted: Tensor, classes: int, per_sample: bool = True, denominator: str = "all"
) -> float:
    """ln of the spread of predicted-class centroids around the mean of all features, sum_j n_j |m_j - m|^2 / (C - 1).

    Needs no labels. After Xie et al. 2023; all predictions in one class give the logarithm of `FLOOR`.
    """
    features = features.flatten(1).double()
    counts = torch.bincount(predicted, minlength=classes).double()  # (classes,)
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, predicted, features)
    centroids = sums / counts.clamp_min(1).unsqueeze(1)
    spread = (counts * (centroids - features.mean(dim=0)).square().sum(dim=1)).sum().item()
    degrees = classes if denominator == "all" else int((counts > 0).sum())
    spread /= max(degrees - 1, 1) * (len(features) if per_sample else 1)
    return log(max(spread, FLOOR))


def confident_share(agreeing: Tensor, share: float, reading: str) -> float:
    """The confidence that the top `share` of the samples predicted as labelled exceed; or the mean over that share."""
    level = torch.quantile(agreeing, 1 - share)
    return (level if reading == "quantile" else agreeing[agreeing >= level].mean()).item()


def label_slope(probs: Tensor, labels: Tensor) -> dict[str, float]:
    """How far the labels follow the model's probabilities: `slope` of one on the other, all classes; `slope_error`.

    sum_c cov(p_c, [y = c]) / sum_c var(p_c): 1 if labels are drawn as the model says, more if it is less sure than it
    could be, 0 if they are unrelated. Replacing a share s of the labels by random ones multiplies it by 1 - s, however
    sure the model is: only ratios of clients' slopes are used. Nothing if all images get the same probabilities.
    """
    away = probs - probs.mean(dim=0)  # (N, classes)
    hot = torch.zeros_like(probs).scatter_(1, labels.unsqueeze(1), 1.0)
    follows, spread = (away * (hot - hot.mean(dim=0))).sum(dim=1), away.square().sum(dim=1)  # (N,), (N,)
    total = spread.sum().item()
    if total < FLOOR:
        return {}
    slope = follows.sum().item() / total
    return {"slope": slope, "slope_error": (follows - slope * spread).norm().item() / total}
