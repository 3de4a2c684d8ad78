"""One optimiser step on one batch: plain, or sharpness-aware."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from fedpca.core import Net, Order, Site, When
from fedpca.parts.abilities import Gradient

Backward = Callable[[], None]  # adds the gradient of one batch's loss, at the present weights, to `net.weights.grad`
Step = Callable[[Site, Backward, Optimizer], None]

TINY = 1e-12
SETTLED = "settled"  # shown by the server: losses fall so slowly that sharpness-aware steps pay


@dataclass(frozen=True)
class Descend:
    """One plain step down the gradient."""

    def __call__(self, site: Site, backward: Backward, optimizer: Optimizer) -> None:
        batch_gradient(site.net, backward)
        optimizer.step()

    def direction(self, weights: Tensor, gradient: Gradient, when: When | Order) -> Tensor:
        """The gradient itself, of many clients at once."""
        return gradient(weights)


descend = Descend()


@dataclass(frozen=True)
class GSAM:
    """Zhuang et al. 2022: down the gradient at the worst point nearby, and a little up what is across it.

    With g here and g' there the direction is g' - alpha (g - its projection on g'). With alpha = 0 it is SAM, with
    radius = 0 plain descent. The radius grows as (round / rounds)^growth up to `radius`; 0: it is constant.
    """

    radius: float
    alpha: float
    growth: float

    @property
    def reads_rounds(self) -> bool:
        """Unless the radius is constant."""
        return self.growth > 0

    @torch.no_grad()
    def __call__(self, site: Site, backward: Backward, optimizer: Optimizer) -> None:
        """Two passes over the batch, one step."""
        net, radius = site.net, radius_in(site.order, self.radius, self.growth)
        generator = _global_generator(net.device)
        masks = generator.get_rng_state() if net.draws else None
        here, plain = net.weights.clone(), batch_gradient(net, backward).clone()
        net.weights.add_(plain, alpha=radius / (plain.norm().item() + TINY))
        if masks is not None:  # the second pass must drop the same units
            generator.set_rng_state(masks)
        with _frozen_statistics(net):
            risen = batch_gradient(net, backward)
        net.weights.copy_(here)  # copied, not subtracted: the weights come back to the bit
        length = risen.norm().item()
        along = torch.dot(plain, risen).item() / (length * (length + TINY) or TINY)
        risen.mul_(1 + self.alpha * along).add_(plain, alpha=-self.alpha)  # risen - alpha (plain - along risen)
        optimizer.step()

    def direction(self, weights: Tensor, gradient: Gradient, when: When | Order) -> Tensor:
        """The same of many clients at once, each row its own; it may be where the gradient was."""
        radius, plain = radius_in(when, self.radius, self.growth), gradient(weights).clone()
        risen = gradient(torch.addcmul(weights, plain, radius / (plain.norm(dim=1, keepdim=True) + TINY)))
        length = risen.norm(dim=1, keepdim=True)
        along = (plain * risen).sum(dim=1, keepdim=True) / (length * (length + TINY)).clamp_min(TINY**2)
        return risen.mul_(1 + self.alpha * along).sub_(plain, alpha=self.alpha)


@dataclass(frozen=True)
class SharpWhereShown:
    """Plain steps, and those of a sharpness-aware one in rounds for which the server shows `SETTLED`."""

    sharp: GSAM

    def __call__(self, site: Site, backward: Backward, optimizer: Optimizer) -> None:
        step: Step = self.sharp if SETTLED in site.order.shown else descend
        step(site, backward, optimizer)

    def direction(self, weights: Tensor, gradient: Gradient, when: When | Order) -> Tensor:
        """The same of many clients at once, which share an order."""
        shown = isinstance(when, Order) and SETTLED in when.shown
        return self.sharp.direction(weights, gradient, when) if shown else gradient(weights)


def _global_generator(device: torch.device) -> ModuleType:
    """Where the state of a device's global generator, which dropout draws from, is read and set."""
    return torch if device.type == "cpu" else torch.get_device_module(device)


def radius_in(when: When | Order, radius: float, growth: float) -> float:
    """The radius in a round: it grows as (round / rounds)^growth."""
    return radius * float((when.round / when.rounds) ** growth)


def batch_gradient(net: Net, backward: Backward) -> Tensor:
    """The gradient of the batch, in the vector that the model's tensors look into."""
    assert net.weights.grad is not None
    net.weights.grad.zero_()
    with torch.enable_grad():
        backward()
    return net.weights.grad


@contextmanager
def _frozen_statistics(net: Net) -> Iterator[None]:
    """Batch norm normalises by the batch but leaves its running statistics alone."""
    layers = [m for m in net.module.modules() if isinstance(m, _BatchNorm)] if len(net.buffers) else []
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
