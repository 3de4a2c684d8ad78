"""What a client tells the server about its data under the global model: a few numbers from one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpca.core import Net, Report, ReportPart, Site
from fedpca.models.device import to_device
from fedpca.parts.abilities import OfMany, ability
from fedpca.parts.client.augment import Augment
from fedpca.parts.client.step import radius_in
from fedpca.parts.server.identify import FLOOR
from fedpca.screening import Bound, Claims, claims_of, joint_claims, says

BATCH = (
    128  # rows of a pass without gradients; larger ones leave the cache and take 1.6 times as long with convolutions
)
MAX_LOSS = 1e6  # a mean cross-entropy above it takes logits that no training makes
MAX_SPREAD = 200.0  # logarithm of the largest dispersion that features in single precision can have
LOSS = Bound(0, MAX_LOSS, usual=(0, 5))
# probabilities (classes, N), labels, whose they are, sizes -> each client's numbers
LabelNumbers = Callable[[Tensor, Tensor, Tensor, Sequence[int]], Sequence[Mapping[str, float]]]
MANY = 2048  # rows of a pass for many small clients of a network without convolutions


@says(loss=LOSS)
def mean_loss(site: Site) -> Report:
    """`loss`: mean cross-entropy of the labels in use."""
    logits = all_logits(site)
    return {"loss": cross_entropy(logits, site.y).item()}


@dataclass(frozen=True)
class Sharpness:
    """`sharpness`: how much the mean loss rises at the worst point within `radius` of the weights, to first order."""

    radius: float
    growth: float  # the radius grows as in `GSAM`

    @property
    def reads_rounds(self) -> bool:
        """Unless the radius is constant."""
        return self.growth > 0

    @property
    def claims(self) -> Claims:
        """A loss rises by no more than losses can be."""
        return Claims({"sharpness": LOSS._replace(usual=(0, 1))})

    def __call__(self, site: Site) -> Report:
        """The rise, at least 1e-10; the model is left as it was."""
        net, radius = site.net, radius_in(site.order, self.radius, self.growth)
        assert net.weights.grad is not None
        net.weights.grad.zero_()
        with torch.enable_grad():
            before = _sum_of_losses(site, backward=True)
        here = net.weights.detach().clone()
        slope = net.weights.grad
        net.weights.data.add_(slope, alpha=radius / (slope.norm().item() + 1e-12))
        after = _sum_of_losses(site, backward=False)
        net.weights.data.copy_(here)
        return {"sharpness": max((after - before) / len(site.y), 1e-10)}


def _sum_of_losses(site: Site, *, backward: bool) -> float:
    total = 0.0
    for rows in torch.split(torch.arange(len(site.y)), BATCH):
        loss = cross_entropy(site.net(site.x[rows]), to_device(site.y[rows], site.net.device), reduction="sum")
        if backward:
            loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


@dataclass(frozen=True)
class JoinReports:
    """The numbers of several reports in one."""

    parts: tuple[ReportPart, ...]

    def __call__(self, site: Site) -> Report:
        return {key: value for part in self.parts for key, value in part(site).items()}

    @property
    def claims(self) -> Claims:
        """All that the parts can say."""
        return joint_claims(map(claims_of, self.parts))

    @property
    def needs_features(self) -> bool:
        """Whether one of them does."""
        return any(ability(part, "needs_features") for part in self.parts)

    @property
    def of_many(self) -> OfMany[Report] | None:
        """All numbers of clients that share a model; None if one of the reports needs each client alone."""
        ways = [ability(part, "of_many") for part in self.parts]
        return partial(_joined, ways) if all(ways) else None


def _joined(ways: Sequence[OfMany[Report]], sites: Sequence[Site]) -> list[Report]:
    answers = zip(*(of_many(sites) for of_many in ways), strict=True)
    return [{key: value for report in own for key, value in report.items()} for own in answers]


@dataclass(frozen=True)
class PerformanceAndCapacity:
    """`loss`, `dispersion` and, where asked for, `confidence`, and what the labels are worth beside predictions."""

    per_sample: bool  # divide the dispersion by the client's size, so that sizes do not show in it
    denominator: Literal["all", "predicted"]  # C - 1 with C all classes, or those that are predicted
    confidence: Literal["quantile", "top-mean"] | None  # how the threshold for confident samples is read
    labels: LabelNumbers | None  # such as `label_evidence`: numbers by which wrong labels show
    augment: Augment | None  # of the images; any makes the numbers noisy

    @property
    def needs_features(self) -> bool:
        """Dispersion is that of the features."""
        return True

    @property
    def claims(self) -> Claims:
        """A logarithm that has a floor, and shares; who has no sample predicted as labelled has no confidence."""
        own = {"loss": LOSS, "dispersion": Bound(log(FLOOR), MAX_SPREAD, usual=(-6, 4))}
        sure = {"confidence": Bound(0, 1, needed="never", absent=0.0)} if self.confidence else {}
        return joint_claims((Claims({**own, **sure}), claims_of(self.labels)))

    @property
    def reads_rounds(self) -> bool:
        """The confidence is that of the top t / T."""
        return self.confidence is not None

    def __call__(self, site: Site) -> Report:
        """The numbers, from one pass in eval mode; `dispersion` alone does not look at labels."""
        return self._reports([site], *(torch.cat(parts) for parts in zip(*passes(site, self.augment), strict=True)))[0]

    @property
    def of_many(self) -> OfMany[Report] | None:
        """The numbers of clients that share a model, from one pass over all their images; None if augmented."""
        return None if self.augment else self._of_many

    def _of_many(self, sites: Sequence[Site]) -> list[Report]:
        images = torch.cat([whole(site) for site in sites])
        seen = [_features_and_logits(sites[0].net, some) for some in torch.split(images, MANY)]
        return self._reports(sites, *(torch.cat(parts) for parts in zip(*seen, strict=True)))

    def _reports(self, sites: Sequence[Site], features: Tensor, logits: Tensor) -> list[Report]:
        """Each client's numbers from the features and logits of all their images, one client after the other."""
        sizes, labels = [len(site.y) for site in sites], torch.cat([site.y for site in sites])
        owners = torch.repeat_interleave(torch.arange(len(sites)), torch.tensor(sizes))
        predicted, logs = logits.argmax(dim=1), log_probs(logits)
        losses = torch.zeros(len(sites), dtype=torch.float64)
        losses.index_add_(0, owners, logs.gather(0, labels.unsqueeze(0)).squeeze(0), alpha=-1)
        spreads = dispersions(features, predicted, owners, sizes, logits.shape[1], self.per_sample, self.denominator)
        reports: list[dict[str, float | list[float]]] = [
            {"loss": loss / size, "dispersion": spread}
            for loss, size, spread in zip(losses.tolist(), sizes, spreads, strict=True)
        ]
        if self.confidence or self.labels:
            probs, hits = logs.exp_(), predicted == labels
            if self.confidence:
                share = sites[0].order.round / sites[0].order.rounds
                sure = confident_shares(probs.amax(dim=0)[hits], owners[hits], len(sites), share, self.confidence)
                _add(reports, [{"confidence": level} if level is not None else {} for level in sure])
            if self.labels:
                _add(reports, self.labels(probs, labels, owners, sizes))
        return list(reports)


def _add(reports: Sequence[dict[str, float | list[float]]], more: Sequence[Mapping[str, float]]) -> None:
    for report, numbers in zip(reports, more, strict=True):
        report.update(numbers)


def whole(site: Site) -> Tensor:
    """All the client's images, without a copy where they lie in memory."""
    return site.x if isinstance(site.x, Tensor) else site.x[torch.arange(len(site.x))]


def passes(site: Site, augment: Augment | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Features (n, d) and logits (n, classes) of all the client's images, in large batches."""
    for rows in torch.split(torch.arange(len(site.y)), BATCH):
        yield _features_and_logits(site.net, augment(site.x[rows], site.rng) if augment else site.x[rows])


def all_logits(site: Site) -> Tensor:
    """Logits (N, classes) of all the client's images, on the CPU; for this a model needs no features."""
    return torch.cat([site.net(site.x[rows]).cpu() for rows in torch.split(torch.arange(len(site.y)), BATCH)])


def _features_and_logits(net: Net, images: Tensor) -> tuple[Tensor, Tensor]:
    """Features and logits, on the CPU: what is made of them is small, and in double precision."""
    features, logits = net.features(images)
    return features.cpu(), logits.cpu()


def log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities (classes, samples) of logits (samples, classes), in double precision.

    Turned round because the classes are few: sums along a short last dimension take four times as long.
    """
    return logits.T.contiguous().double().log_softmax(dim=0)


def dispersion(features: Tensor, predicted: Tensor, classes: int, per_sample: bool, denominator: str) -> float:
    """ln of the spread of predicted-class centroids around the mean of all features, sum_j n_j |m_j - m|^2 / (C - 1).

    Needs no labels. After Xie et al. 2023; all predictions in one class give the logarithm of `FLOOR`.
    """
    owners = torch.zeros(len(features), dtype=torch.int64)
    return dispersions(features, predicted, owners, [len(features)], classes, per_sample, denominator)[0]


def dispersions(
    features: Tensor,
    predicted: Tensor,
    owners: Tensor,
    sizes: Sequence[int],
    classes: int,
    per_sample: bool,
    denominator: str,
) -> list[float]:
    """The `dispersion` of each client; `owners` says whose the samples are."""
    features, count = features.flatten(1).double(), len(sizes)
    cells = owners * classes + predicted  # (samples,): one cell per client and class
    counts = torch.bincount(cells, minlength=count * classes).double().view(count, classes)
    sums = torch.zeros(count * classes, features.shape[1], dtype=torch.float64).index_add_(0, cells, features)
    spreads = _between(sums.view(count, classes, -1), counts)
    degrees = torch.full((count,), classes) if denominator == "all" else (counts > 0).sum(dim=1)
    spreads = spreads / (degrees - 1).clamp_min(1) / (torch.tensor(sizes) if per_sample else 1)
    return spreads.clamp_min(FLOOR).log().tolist()


def _between(sums: Tensor, counts: Tensor) -> Tensor:
    """sum_j n_j |m_j - m|^2 per client, from the sums n_j m_j (clients, classes, d) and the n_j (clients, classes).

    As sum_j |n_j m_j|^2 / n_j - |n m|^2 / n, which needs no second pass; exactly 0 where all samples are in one class.
    """
    several = (counts > 0).sum(dim=1) > 1
    within = (sums.square().sum(dim=2) / counts.clamp_min(1)).sum(dim=1)
    return (within - sums.sum(dim=1).square().sum(dim=1) / counts.sum(dim=1)) * several


def confident_shares(agreeing: Tensor, owners: Tensor, count: int, share: float, reading: str) -> list[float | None]:
    """Per client the confidence that the top `share` of its samples predicted as labelled exceed, or their mean.

    Linear between samples, as `torch.quantile` has it; None for a client without such samples.
    """
    if len(agreeing) == 0:
        return [None] * count
    sizes, order = torch.bincount(owners, minlength=count), agreeing.argsort()
    ranked = agreeing[order][owners[order].argsort(stable=True)]  # client by client, each ascending
    place = (1 - share) * (sizes - 1).clamp_min(0).double()
    starts, below = sizes.cumsum(0) - sizes, place.floor().long()
    last = (starts + sizes - 1).clamp_min(0)
    low, high = ranked[torch.minimum(starts + below, last)], ranked[torch.minimum(starts + below + 1, last)]
    levels = torch.lerp(low, high, place - below)
    if reading != "quantile":
        top = (agreeing >= levels[owners]).double()
        sums = torch.zeros(2, count, dtype=torch.float64)
        sums[0].index_add_(0, owners, top * agreeing)
        levels = sums[0] / sums[1].index_add_(0, owners, top)
    return [level if size else None for level, size in zip(levels.tolist(), sizes.tolist(), strict=True)]


def confident_share(agreeing: Tensor, share: float, reading: str) -> float:
    """The same of one client, which has such samples."""
    (level,) = confident_shares(agreeing, torch.zeros(len(agreeing), dtype=torch.int64), 1, share, reading)
    assert level is not None
    return level
