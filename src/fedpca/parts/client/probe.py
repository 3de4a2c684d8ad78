"""What a client measures for the server's choices: its loss under a model that gives rare clients more weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpca.core import Report, Site
from fedpca.models.device import to_device
from fedpca.parts.abilities import ShiftsLogits
from fedpca.parts.client.loss import is_skewed
from fedpca.parts.client.report import MAX_LOSS
from fedpca.screening import Bound, Claims

MORE_RARE = "more_rare"  # shown by the server: what a larger weight of rare clients would add to the weights
GAIN = "gain"  # in a report: by how much the loss would fall
SKEWED = "skewed"  # in a report


@dataclass(frozen=True)
class HeldOut:
    """Rows on which a client never trains, so that what it says of a model is not what it learned by heart.

    Every so many rows, in the order of the data: the same ones in every round, at every engine. A small client holds
    nothing out, since each image counts there.
    """

    share: float  # of the rows
    min_rows: int  # of a client, below which it holds nothing out

    def every(self, count: int) -> int | None:
        """Of so many rows, those whose number this divides are held out; None: none are."""
        return round(1 / self.share) if self.share > 0 and count >= self.min_rows else None


@dataclass(frozen=True)
class TryMoreRare:
    """`gain`: by how much the mean loss falls if rare clients weigh more; on held-out rows, else on some others.

    The loss is the one that is trained, as far as that is cross-entropy of shifted logits.
    """

    held_out: HeldOut
    max_rows: int
    loss: ShiftsLogits

    @property
    def claims(self) -> Claims:
        """A difference of losses, where the server shows something to try."""
        return Claims({GAIN: Bound(-MAX_LOSS, MAX_LOSS, needed="never", usual=(-0.5, 0.5))})

    def __call__(self, site: Site) -> Report:
        return self.of_many([site])[0]

    def of_many(self, sites: Sequence[Site]) -> list[Report]:
        """The gain of clients that share a model; nothing where the server shows nothing to try."""
        step = sites[0].order.shown.get(MORE_RARE)
        if step is None:
            return [{} for _ in sites]
        rows = [self._rows(site.y.shape[0]) for site in sites]
        images = torch.cat([site.x[own] for site, own in zip(sites, rows, strict=True)])
        labels = torch.cat([site.y[own] for site, own in zip(sites, rows, strict=True)])
        shifts = torch.cat([self._shifts(site, own.shape[0]) for site, own in zip(sites, rows, strict=True)])
        weights = sites[0].net.weights
        before, here = _losses(sites[0], images, shifts, labels), weights.detach().clone()
        weights.data.add_(to_device(step, sites[0].net.device))
        after = _losses(sites[0], images, shifts, labels)
        weights.data.copy_(here)  # copied, not subtracted: the weights come back to the bit
        gains = torch.split(before - after, [own.shape[0] for own in rows])
        return [{GAIN: own.mean().item()} for own in gains]

    def _rows(self, count: int) -> Tensor:
        """The rows that are held out, else rows spread over all, at most `max_rows` of either."""
        every = self.held_out.every(count) or 1
        rows = torch.arange(0, count, every)
        return rows[:: -(-rows.shape[0] // self.max_rows)]

    def _shifts(self, site: Site, count: int) -> Tensor:
        """What the loss adds to the logits of a client's rows (count, classes)."""
        shift = self.loss.logit_shift(site.y, site.net.classes)
        return torch.zeros(count, site.net.classes) if shift is None else shift.expand(count, -1)


@dataclass(frozen=True)
class ReportSkew:
    """`skewed`: 1 if the client's classes are skewed, so that its training is adjusted, else 0."""

    deviations: float  # see `is_skewed`

    @property
    def claims(self) -> Claims:
        """Yes or no."""
        return Claims({SKEWED: Bound(0, 1)})

    def __call__(self, site: Site) -> Report:
        return {SKEWED: float(is_skewed(site.y, site.net.classes, self.deviations))}

    def of_many(self, sites: Sequence[Site]) -> list[Report]:
        """The same of several clients."""
        return [self(site) for site in sites]


def _losses(site: Site, images: Tensor, shifts: Tensor, labels: Tensor) -> Tensor:
    logits = torch.cat([site.net(some).cpu() for some in torch.split(images, AT_ONCE)])
    return cross_entropy(logits + shifts, labels, reduction="none").double()


AT_ONCE = 512  # rows of a pass
