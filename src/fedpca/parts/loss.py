"""What local training minimises: made once for a client's samples, then applied to each batch."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from fedpca.core import Samples, Site

BatchLoss = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, logits, labels -> scalar
Loss = Callable[[Site, Samples], BatchLoss]


def cross_entropy(site: Site, samples: Samples) -> BatchLoss:
    """Mean cross-entropy of the labels."""
    return lambda images, logits, labels: F.cross_entropy(logits, labels)
