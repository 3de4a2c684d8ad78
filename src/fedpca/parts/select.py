"""Which of its samples a client trains on, and under which labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpca.core import Samples, Select, Site
from fedpca.parts.report import MANY, passes


def everything(site: Site) -> Samples:
    """All samples under the labels in use: the given ones unless the client has corrected them."""
    return Samples(torch.arange(len(site.y)), site.y)


def nothing() -> Samples:
    """No samples."""
    none = torch.empty(0, dtype=torch.int64)
    return Samples(none, none)


@dataclass(frozen=True)
class NothingOfTheMislabeled:
    """What another selection takes, or nothing if the client is judged mislabeled: (D)."""

    otherwise: Select = everything

    def __call__(self, site: Site) -> Samples:
        """The samples."""
        return nothing() if site.order.verdict.group == "mislabeled" else self.otherwise(site)


@dataclass(frozen=True)
class ConfidentOfTheMislabeled:
    """All samples; of a client judged mislabeled those predicted with confidence, under their predictions: (HS)."""

    least: int = 2  # fewer samples are not worth a step: batch norm needs two

    def __call__(self, site: Site) -> Samples:
        """The samples; their reliability is the mean confidence."""
        if site.order.verdict.group != "mislabeled":
            return everything(site)
        return self._confident(site, torch.cat([logits for _, logits in passes(site)]))

    def of_many(self, sites: Sequence[Site]) -> list[Samples]:
        """Each client's samples; they share the model, and one pass is made for all that are mislabeled."""
        judged = [site for site in sites if site.order.verdict.group == "mislabeled"]
        if not judged:
            return [everything(site) for site in sites]
        images = torch.cat([site.x[torch.arange(len(site.y))] for site in judged])
        logits = torch.cat([judged[0].net(some) for some in torch.split(images, MANY)])
        parts = iter(torch.split(logits, [len(site.y) for site in judged]))
        return [
            self._confident(site, next(parts)) if site.order.verdict.group == "mislabeled" else everything(site)
            for site in sites
        ]

    def _confident(self, site: Site, logits: Tensor) -> Samples:
        confidence, predicted = logits.double().softmax(dim=1).max(dim=1)
        rows = (confidence > site.order.verdict.threshold).nonzero().flatten()
        rows = rows if len(rows) >= self.least else rows[:0]
        reliability = confidence[rows].mean().item() if len(rows) else 1.0
        return Samples(rows, predicted[rows], reliability)
