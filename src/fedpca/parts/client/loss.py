"""What local training minimises: made once for a client's samples, then applied to each batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Samples, Site
from fedpca.parts.abilities import LogitShift, ability


class Batch(NamedTuple):
    """What a loss may look at: some of the client's samples, and what the model makes of them."""

    images: Tensor  # as training takes them: augmented, blended
    logits: Tensor  # (n, classes)
    labels: Tensor  # (n,) or, where images are blended, shares of the classes (n, classes)
    rows: Tensor  # (n,) of the client's data: which samples these are


BatchLoss = Callable[[Batch], Tensor]  # a scalar: a mean over the samples, and terms that do not depend on them
Loss = Callable[[Site, Samples], BatchLoss]
TINY = 1e-12  # share of a class without labels in logit adjustment: finite also where tau is 0


@dataclass(frozen=True)
class CrossEntropy:
    """Mean cross-entropy of the labels."""

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        return lambda batch: F.cross_entropy(batch.logits, batch.labels)

    def logit_shift(self, labels: Tensor, classes: int) -> None:
        """None: the logits as they are."""


cross_entropy = CrossEntropy()


@dataclass(frozen=True)
class LogitAdjustment:
    """Cross-entropy of f(x) + tau log pi, pi the class shares among the labels in use (Menon et al. 2021)."""

    tau: float

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss under the class shares of these samples."""
        shift = self.logit_shift(samples.labels, site.net.classes).to(site.net.device)
        return lambda batch: F.cross_entropy(batch.logits + shift, batch.labels)

    def logit_shift(self, labels: Tensor, classes: int) -> Tensor:
        """tau log pi (classes,); a class without labels counts `TINY` of all, so that cross-entropy leaves it alone."""
        return self.tau * log_prior(labels, classes, TINY)


@dataclass(frozen=True)
class AdjustmentWhereSkewed:
    """`LogitAdjustment` where a client's classes are skewed, plain cross-entropy where chance explains their counts.

    Skewed: the chi-square statistic of the counts against even ones lies `deviations` of its own above its mean.
    """

    tau: float
    deviations: float

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss under the class shares of these samples."""
        shift = self.logit_shift(samples.labels, site.net.classes).to(site.net.device)
        return lambda batch: F.cross_entropy(batch.logits + shift, batch.labels)

    def logit_shift(self, labels: Tensor, classes: int) -> Tensor:
        """tau log pi (classes,), or zeros."""
        if not is_skewed(labels, classes, self.deviations):
            return torch.zeros(classes)
        return self.tau * log_prior(labels, classes, TINY)


def is_skewed(labels: Tensor, classes: int, deviations: float) -> bool:
    """Whether the classes' counts differ by more than chance would make them."""
    counts = torch.bincount(labels, minlength=classes).double()
    even, degrees = counts.sum() / classes, classes - 1
    statistic = ((counts - even).square().sum() / even.clamp_min(TINY)).item()
    return statistic > degrees + deviations * sqrt(2 * degrees)


@dataclass(frozen=True)
class Proximal:
    """Another loss and, the more wrong labels a client is thought to have, the more the distance from the start.

    strength s |w - w_0|, s the verdict's suspicion. Where the weights have not moved yet the term is left out: a norm
    has no gradient at zero.
    """

    strength: float
    loss: Loss = cross_entropy

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss around the weights that the model holds now."""
        plain, pull = self.loss(site, samples), self.strength * (site.order.verdict.suspicion or 0.0)
        if pull == 0:
            return plain
        start = site.net.weights.detach().clone()

        def total(batch: Batch) -> Tensor:
            distance = (site.net.weights - start).norm()
            return plain(batch) + (pull * distance if distance.item() > 0 else 0.0)

        return total


@dataclass(frozen=True)
class NearStart:
    """Another loss, and mu / 2 times the squared distance of the weights from the start (FedProx).

    With mu = 0 it is the other loss to the bit.
    """

    mu: float
    loss: Loss

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss around the weights that the model holds now."""
        plain = self.loss(site, samples)
        if self.mu == 0:
            return plain
        start = site.net.weights.detach().clone()
        return lambda batch: plain(batch) + self.mu / 2 * (site.net.weights - start).square().sum()

    @property
    def logit_shift(self) -> LogitShift | None:
        """The other loss's, if it has it."""
        shift: LogitShift | None = ability(self.loss, "logit_shift")
        return shift

    @property
    def pull(self) -> float:
        """What the distance from the start adds to the gradient, per unit."""
        return self.mu


@dataclass(frozen=True)
class Distillation:
    """Another loss; for clients judged mislabeled, partly agreement with the global model in place of their labels.

    l KL(softmax(g / temperature) || p) + (1 - l) CE(p, y), g the global model's logits, p the model's probabilities,
    logit-adjusted where asked for; then a class that the client lacks is left alone. l rises from max_share e^-5 in
    round `begin` to max_share in round `end`; rounds are counted from 0 here.
    """

    max_share: float
    temperature: float
    begin: int
    end: int
    adjusted: bool
    otherwise: Loss = cross_entropy

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss against a frozen copy of the model as it is now."""
        if site.order.verdict.group != "mislabeled":
            return self.otherwise(site, samples)
        teacher = copy.deepcopy(site.net.module).eval().requires_grad_(False)
        shift = log_prior(samples.labels, site.net.classes, 0.0) if self.adjusted else torch.zeros(())
        shift = shift.to(site.net.device)
        share = self.share(site.order.round - 1)

        def total(batch: Batch) -> Tensor:
            with torch.no_grad():
                soft = (teacher(site.net.scale(batch.images)) / self.temperature).softmax(dim=1)
            return distillation(batch.logits + shift, soft, batch.labels, share)

        return total

    def share(self, round: int) -> float:
        """l of a round, counted from 0."""
        ahead = 1 - (min(max(round, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return self.max_share * exp(-5 * ahead**2)


def distillation(logits: Tensor, soft: Tensor, labels: Tensor, share: float) -> Tensor:
    """share KL(soft || p) + (1 - share) CE(p, labels), batch means.

    A class with a logit of minus infinity has no part in p, and its log-probability counts as 0 in the divergence, as
    in FedNoRo's code: what the other model thinks of it pulls at no logit.
    """
    logs = logits.log_softmax(dim=1)
    apart = F.kl_div(logs.masked_fill(logs.isinf(), 0.0), soft, reduction="batchmean")
    finite = logits.clamp_min(-1e30)  # labels may be shares of classes, and zero times infinity is not zero
    return share * apart + (1 - share) * F.cross_entropy(finite, labels)


def logit_shift_of(loss: Loss, site: Site, samples: Samples) -> Tensor:
    """What a loss adds to the logits before its cross-entropy, where the model is; 0 if it adds nothing."""
    shift: LogitShift | None = ability(loss, "logit_shift")
    added = shift and shift(samples.labels, site.net.classes)
    return torch.zeros(()).to(site.net.device) if added is None else added.to(site.net.device)


def log_prior(labels: Tensor, classes: int, min_share: float) -> Tensor:
    """Logarithms of the class shares (classes,), of at least `min_share`; if that is 0, some may be minus infinity."""
    counts = torch.bincount(labels, minlength=classes).double()
    return (counts / counts.sum()).clamp_min(min_share).log().float()
