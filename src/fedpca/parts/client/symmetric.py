"""Symmetric cross-entropy: the labels judged by the model as well as the model by the labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Report, Samples, Site
from fedpca.parts.client.loss import Batch, BatchLoss, Loss, logit_shift_of
from fedpca.parts.client.report import LOSS, all_logits
from fedpca.screening import Claims


@dataclass(frozen=True)
class SymmetricMix:
    """alpha CE + beta RCE of logits and labels, RCE the cross-entropy of labels seen from the predictions.

    RCE = -sum_j p_j ln max(y_j, floor), a mean over the samples. Its gradient fades where the model is sure that a
    label is wrong.
    """

    alpha: float
    beta: float
    floor: float  # what counts as the share of a class that is not the label

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean; labels may be shares of classes."""
        plain = self.alpha * F.cross_entropy(logits, labels)
        return plain + self.beta * reverse_cross_entropy(logits, labels, self.floor) if self.beta else plain


def reverse_cross_entropy(logits: Tensor, labels: Tensor, floor: float) -> Tensor:
    """-sum_j p_j ln max(y_j, floor), a mean over the samples; for hard labels -ln(floor) (1 - p_y)."""
    shares = labels if labels.ndim == 2 else F.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return -(logits.softmax(dim=1) * shares.clamp_min(floor).log()).sum(dim=1).mean()


@dataclass(frozen=True)
class SymmetricCrossEntropy:
    """`SymmetricMix` of the logits, shifted as the other loss would shift them (Wang et al. 2019)."""

    mix: SymmetricMix
    otherwise: Loss

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss under the class shares of these samples."""
        shift = logit_shift_of(self.otherwise, site, samples)

        def total(batch: Batch) -> Tensor:
            return self.mix(batch.logits + shift, batch.labels)

        return total


@dataclass(frozen=True)
class SymmetricLoss:
    """`symmetric_loss`: the mean of `SymmetricMix` over the labels in use."""

    mix: SymmetricMix

    @property
    def claims(self) -> Claims:
        """A loss."""
        return Claims({"symmetric_loss": LOSS._replace(usual=(0, 15))})

    def __call__(self, site: Site) -> Report:
        """The number under the model at hand."""
        return {"symmetric_loss": self.mix(all_logits(site).double(), site.y).item()}
