"""Training on the mixture of what a model says of an image and of another view of it, which are pulled together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Samples, Site
from fedpca.parts.client.augment import Augment
from fedpca.parts.client.loss import Batch, BatchLoss, Loss, logit_shift_of
from fedpca.rng import branch

TINY = 1e-6  # the least probability in a divergence


@dataclass(frozen=True)
class SelfRegularised:
    """CE of the sharpened mixture, and with weights a divergence of the two predictions and their entropy.

    The divergence's weight rises from 0 in the first round to `divergence` after the share `ramp` of all rounds.
    `published`: the formulas of FedLSR's code, which takes probabilities for logits in two of the terms.
    """

    view: Augment
    divergence: float
    sharpening: float  # the factor of logits before the divergence
    ramp: float
    entropy: float
    published: bool
    otherwise: Loss  # whose shift of the logits counts

    @property
    def reads_rounds(self) -> bool:
        """The divergence's weight does."""
        return self.divergence > 0 and self.ramp > 0

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss under the class shares of these samples; each batch, or part of one, draws its own views."""
        shift = logit_shift_of(self.otherwise, site, samples)
        weight, rng = self.divergence_in(site.order.round, site.order.rounds), branch(site.rng, "views")

        def total(batch: Batch) -> Tensor:
            share = torch.rand((), generator=rng).item()
            other = site.net(self.view(batch.images, rng))
            fit, apart, unsure = self.terms(batch.logits + shift, other + shift, batch.labels, share)
            return fit + weight * apart + self.entropy * unsure

        return total

    def divergence_in(self, round: int, rounds: int) -> float:
        """The divergence's weight in a round, counted from 1."""
        rising = self.ramp * rounds
        return self.divergence * (min(1.0, (round - 1) / rising) if rising > 0 else 1.0)

    def terms(self, one: Tensor, two: Tensor, labels: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
        """Fit, divergence and entropy of the logits of both views, `share` the first one's part in the mixture."""
        mixed = share * one.softmax(dim=1) + (1 - share) * two.softmax(dim=1)
        squares = mixed.square()
        sharp = squares / squares.sum(dim=1, keepdim=True)
        first, second = ((self.sharpening * logits).softmax(dim=1).clamp(TINY, 1) for logits in (one, two))
        apart = divergence_between(first, second)
        if self.published:
            return F.cross_entropy(sharp, labels), apart / one.shape[1], entropy_of(first.softmax(dim=1))
        unsure = (entropy_of(first) + entropy_of(second)) / 2
        return _fit(sharp, labels), apart, unsure


def _fit(shares: Tensor, labels: Tensor) -> Tensor:
    """-ln of the share of each label, a batch mean; labels may be shares of classes."""
    logs = shares.clamp_min(TINY**2).log()
    return -(labels * logs).sum(dim=1).mean() if labels.ndim == 2 else F.nll_loss(logs, labels)


def divergence_between(one: Tensor, two: Tensor) -> Tensor:
    """The Jensen-Shannon divergence of probabilities (N, classes), a batch mean."""
    middle = ((one + two) / 2).log()
    return (F.kl_div(middle, one, reduction="batchmean") + F.kl_div(middle, two, reduction="batchmean")) / 2


def entropy_of(probs: Tensor) -> Tensor:
    """A batch mean."""
    return -(probs * probs.log()).sum(dim=1).mean()
