"""How the global model does on a client's data without the client's own update."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedpca.core import Params, Report, Site
from fedpca.models.flat import load, params_of
from fedpca.parts.client.report import all_logits
from fedpca.screening import Bound, says

FULL = 1 - 1e-6  # a share above this counts as this, so that what the others made stays computable


@says()
def keep_state(site: Site, params: Params) -> Report:
    """Nothing to send; the client keeps what it sent, to take it out of the next global model."""
    site.memory["weights"], site.memory["buffers"] = params.weights, params.buffers
    site.memory["round"] = torch.tensor(site.order.round)
    return {}


@says(others=Bound(0, 1, needed="never"))
def accuracy_without_own(site: Site) -> Report:
    """`others`: balanced accuracy, on the client's data, of the global model without the client's last update.

    Nothing where the client took no part in the last round, or what it sent was not used.
    """
    verdict, last = site.order.verdict, site.memory.get("round")
    share = verdict.weight
    if share is None or last is None or int(last) != site.order.round - 1 or verdict.notes.get("absent"):
        return {}
    here, shown = params_of(site.net), site.order.shown
    # what the rule made of the last round; where it is the global model itself, it is not sent again
    mean = replace(here, weights=shown.get("weights", here.weights), buffers=shown.get("buffers", here.buffers))
    load(site.net, without(mean, site.memory["weights"], site.memory["buffers"], share))
    predicted = all_logits(site).argmax(dim=1)
    load(site.net, here)
    return {"others": balanced_accuracy(predicted, site.y)}


def without(mean: Params, weights: Tensor, buffers: Tensor, share: float) -> Params:
    """The mean of the other states, given the mean of all and one state's share in it."""
    share = min(share, FULL)

    def others(all_of_them: Tensor, own: Tensor) -> Tensor:
        return ((all_of_them.double() - share * own.double()) / (1 - share)).to(all_of_them.dtype)

    return Params(others(mean.weights, weights), others(mean.buffers, buffers), mean.counters)


def balanced_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """The mean over the classes that occur of the share of their samples that are predicted as labelled."""
    counts = torch.bincount(labels)
    hits = torch.bincount(labels[predicted == labels], minlength=len(counts))
    return (hits[counts > 0].double() / counts[counts > 0]).mean().item()
