"""How sure a model is of each image, labels apart: the energy of its logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpca.core import Params, Report, Site
from fedpca.parts.client.report import all_logits
from fedpca.screening import MAX_LENGTH, Bound, Claims

LEVEL = "energy_level"  # note of the server: from where on an energy is high
SKETCH = 101  # quantiles that stand for all energies: 0, 1, … 100 %


@dataclass(frozen=True)
class Energies:
    """`energy`: that of each image under the model at hand, or quantiles of them."""

    temperature: float
    sketch: bool  # quantiles alone leave the site

    @property
    def claims(self) -> Claims:
        """As logits can be."""
        return Claims({"energy": Bound(-1e6, 1e6, many=True)})

    def __call__(self, site: Site) -> Report:
        """The numbers in ascending order, which says nothing about single images; more than a report holds: quantiles.

        Of these there are as many as a report holds.
        """
        found = energies(all_logits(site), self.temperature).sort().values
        count = SKETCH if self.sketch else min(len(found), MAX_LENGTH)
        return {"energy": (found if len(found) == count else spread_quantiles(found, count)).tolist()}


def energies(logits: Tensor, temperature: float) -> Tensor:
    """T ln sum_j exp(f_j / T) of each row (N,), in double precision."""
    return temperature * (logits.double() / temperature).logsumexp(dim=1)


def spread_quantiles(ranked: Tensor, count: int) -> Tensor:
    """So many evenly spread quantiles of ascending numbers, linear between them."""
    place = torch.linspace(0, len(ranked) - 1, count, dtype=torch.float64)
    below = place.floor().long()
    return torch.lerp(ranked[below], ranked[place.ceil().long()], place - below)


@dataclass(frozen=True)
class HighEnergies:
    """`noisy`: the share of images of high energy under the own new model; said once."""

    temperature: float

    @property
    def claims(self) -> Claims:
        """A share, of those who have been told what is high and have not said it."""
        return Claims({"noisy": Bound(0, 1, needed="never")})

    def __call__(self, site: Site, params: Params) -> Report:
        """The share; nothing before the server has said what is high, or after it has got the share."""
        verdict = site.order.verdict
        level = verdict.notes.get(LEVEL)
        if level is None or "noisy" in verdict.report:
            return {}
        return {"noisy": (energies(all_logits(site), self.temperature) >= level).double().mean().item()}
