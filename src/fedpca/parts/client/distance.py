"""What clients report of their losses, class by class."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from fedpca.core import Report, Site
from fedpca.parts.client.report import MAX_LOSS, all_logits
from fedpca.screening import Bound, says


@says(class_loss=Bound(0, MAX_LOSS, many=True), class_count=Bound(0, 1e12, many=True))
def class_losses(site: Site) -> Report:
    """`class_loss` and `class_count`: mean loss and number of the samples labelled with each class; 0 without any."""
    logits = all_logits(site).double()
    counts = torch.bincount(site.y, minlength=logits.shape[1]).double()
    losses = cross_entropy(logits, site.y, reduction="none")
    sums = torch.zeros_like(counts).index_add_(0, site.y, losses)
    return {"class_loss": (sums / counts.clamp_min(1)).tolist(), "class_count": counts.tolist()}
