"""A mixture of two Gaussians over losses from 0 to 1, fitted by many clients together: clean and noisy samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

RIDGE = 1e-6  # added to each variance
TINY = 1e-12


class Filter(NamedTuple):
    """Two components; the one of lower mean is that of clean samples."""

    means: Tensor  # (2,), as below, in double precision
    variances: Tensor
    weights: Tensor

    @property
    def numbers(self) -> list[float]:
        """As six numbers."""
        return [*self.means.tolist(), *self.variances.tolist(), *self.weights.tolist()]


NUMBERS = 6


def filter_of(numbers: Sequence[float] | Tensor) -> Filter:
    """From six numbers, as they may arrive: variances are not below `RIDGE`, weights sum to 1."""
    means, variances, weights = torch.as_tensor(numbers, dtype=torch.float64).view(3, 2)
    weights = weights.clamp_min(TINY)
    return Filter(means, variances.clamp_min(RIDGE), weights / weights.sum())


FIRST = (0.2, 0.8, 0.04, 0.04, 0.5, 0.5)  # the filter before there is one


def responsibilities(own: Filter, values: Tensor) -> Tensor:
    """How likely each value (N,) is of each component (N, 2)."""
    apart = (values[:, None] - own.means).square() / own.variances
    return (own.weights.log() - 0.5 * (apart + own.variances.log())).softmax(dim=1)


def clean_chances(own: Filter, values: Tensor) -> Tensor:
    """How likely each value (N,) is of the component of lower mean."""
    return responsibilities(own, values)[:, int(own.means.argmin())]


def refitted(own: Filter, values: Tensor, steps: int) -> Filter:
    """The filter after some steps of expectation-maximisation on values (N,)."""
    for _ in range(steps):
        resp = responsibilities(own, values)
        sizes = resp.sum(dim=0) + TINY
        means = (resp * values[:, None]).sum(dim=0) / sizes
        variances = (resp * (values[:, None] - means).square()).sum(dim=0) / sizes + RIDGE
        own = Filter(means, variances, sizes / sizes.sum())
    return own


def joint_filter(filters: Sequence[Filter], sizes: Sequence[float], published: bool) -> Filter:
    """The filter of all clients' samples together: its components have the moments of the clients' own.

    `published`: means of means and weights by size, and variances by the square of the size's share, so that those of
    K equal clients shrink to a K-th.
    """
    share = torch.tensor(sizes, dtype=torch.float64)
    share = (share / share.sum())[:, None]
    means, variances, weights = (torch.stack(each) for each in zip(*filters, strict=True))
    if published:
        joint = (share * means).sum(dim=0), (share.square() * variances).sum(dim=0), (share * weights).sum(dim=0)
        return filter_of(torch.cat(joint))
    mass = share * weights
    total = mass.sum(dim=0)
    middle = (mass * means).sum(dim=0) / total
    spread = (mass * (variances + means.square())).sum(dim=0) / total - middle.square()
    return filter_of(torch.cat((middle, spread, total)))


def scaled_losses(losses: Tensor) -> Tensor | None:
    """Losses (N,) stretched from 0 to 1; None where they are all alike."""
    low, high = losses.min(), losses.max()
    return (losses - low) / (high - low) if high - low > TINY * high.abs() else None
