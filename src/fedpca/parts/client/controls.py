"""SCAFFOLD on the client: steps that leave out what is known to be its own drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedpca.core import Order, Params, Report, Site, When
from fedpca.models.device import to_device
from fedpca.parts.abilities import Direction, Gradient
from fedpca.parts.client.step import Backward, batch_gradient
from fedpca.parts.pace import Pace
from fedpca.screening import Claims

CONTROL = "control"  # shown by the server: c; in a client's memory: its own, c_k
START, STEPS = "start", "steps"  # of the round under way: the weights it began with, the steps so far


@dataclass(frozen=True)
class Controlled:
    """A step down the gradient plus c - c_k; without either down the gradient alone."""

    def __call__(self, site: Site, backward: Backward, optimizer: Optimizer) -> None:
        if START not in site.memory:
            _begin([site])
        gradient, correction = batch_gradient(site.net, backward), _correction(site)
        if correction is not None:
            gradient.add_(to_device(correction, gradient.device))
        optimizer.step()
        site.memory[STEPS] += 1

    def direction_for(self, sites: Sequence[Site]) -> Direction:
        """The same of these clients at once, which share a model; they take as many steps."""
        _begin(sites)
        given, steps = [_correction(site) for site in sites], sites[0].memory[STEPS]
        none = torch.zeros(len(sites[0].net.weights))
        corrections = torch.stack([none if own is None else own for own in given])

        def direction(weights: Tensor, gradient: Gradient, when: When | Order) -> Tensor:
            steps.add_(1)
            return gradient(weights).add_(to_device(corrections, weights.device))

        return direction


def _begin(sites: Sequence[Site]) -> None:
    """Has the clients remember the weights that their model holds now, and count their steps from here."""
    start, steps = sites[0].net.weights.detach().to("cpu", copy=True), torch.zeros((), dtype=torch.int64)
    for site in sites:
        site.memory[START], site.memory[STEPS] = start, steps


def _correction(site: Site) -> Tensor | None:
    """c - c_k; None where there is neither."""
    common, own = site.order.shown.get(CONTROL), site.memory.get(CONTROL)
    if own is None:
        return common
    return -own if common is None else common - own


@dataclass(frozen=True)
class KeepControl:
    """Nothing to send; the client keeps c_k: the mean of its gradients in this round, as `Controlled` left them out."""

    pace: Pace

    tied_to = ("step",)  # with other steps the sums below mean nothing

    @property
    def claims(self) -> Claims:
        """Nothing."""
        return Claims()

    def __call__(self, site: Site, params: Params) -> Report:
        start, steps = site.memory.pop(START, None), site.memory.pop(STEPS, None)
        if start is None or steps is None:
            return {}
        drift, correction = (start - params.weights) / self.pace.length(int(steps)), _correction(site)
        site.memory[CONTROL] = drift if correction is None else drift - correction
        return {}
