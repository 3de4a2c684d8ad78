"""What local training minimises: made once for a client's samples, then applied to each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Samples, Site

BatchLoss = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, logits, labels -> scalar
Loss = Callable[[Site, Samples], BatchLoss]


def cross_entropy(site: Site, samples: Samples) -> BatchLoss:
    """Mean cross-entropy of the labels."""
    return lambda images, logits, labels: F.cross_entropy(logits, labels)


@dataclass(frozen=True)
class LogitAdjusted:
    """Cross-entropy of f(x) + tau log pi, pi the class shares among the labels in use (Menon et al. 2021)."""

    tau: float = 1.0

    def __call__(self, site: Site, samples: Samples) -> BatchLoss:
        """The loss under the class shares of these samples."""
        shift = self.tau * log_prior(samples.labels, site.net.head.out_features)
        return lambda images, logits, labels: F.cross_entropy(logits + shift, labels)


def log_prior(labels: Tensor, classes: int) -> Tensor:
    """Logarithms of the class shares (classes,); a class that does not occur counts 1e-12 of all, to stay finite."""
    counts = torch.bincount(labels, minlength=classes).double()
    return (counts / counts.sum()).clamp_min(1e-12).log().float()
