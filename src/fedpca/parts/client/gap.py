"""The generalisation gap: how much worse the global model does on a client's data than the client's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn.functional import cross_entropy

from fedpca.core import Params, Report, Site
from fedpca.parts.client.report import LOSS, MAX_LOSS, all_logits
from fedpca.screening import Bound, Claims

Measure = Literal["loss", "accuracy"]


@dataclass(frozen=True)
class KeepOwnLevel:
    """Nothing to send; the client keeps how badly its own new model does on its data."""

    measure: Measure

    @property
    def claims(self) -> Claims:
        """Nothing."""
        return Claims()

    def __call__(self, site: Site, params: Params) -> Report:
        site.memory["own"] = torch.tensor([site.order.round, badness(site)[self.measure]], dtype=torch.float64)
        return {}


@dataclass(frozen=True)
class Gap:
    """`loss` of the global model and, for who trained last round, `gap`: how much worse it does than the own model."""

    measure: Measure

    @property
    def claims(self) -> Claims:
        """A difference of losses, or of shares; who did not train last round has none."""
        most = MAX_LOSS if self.measure == "loss" else 1.0
        return Claims({"loss": LOSS, "gap": Bound(-most, most, needed="never", usual=(-1, 1))})

    def __call__(self, site: Site) -> Report:
        here, own = badness(site), site.memory.get("own")
        if own is None or int(own[0]) != site.order.round - 1:
            return {"loss": here["loss"]}
        return {"loss": here["loss"], "gap": here[self.measure] - float(own[1])}


def badness(site: Site) -> dict[str, float]:
    """Mean loss, and accuracy with its sign turned: in both more is worse."""
    logits = all_logits(site)
    hits = (logits.argmax(dim=1) == site.y).double().mean().item()
    return {"loss": cross_entropy(logits, site.y).item(), "accuracy": -hits}
