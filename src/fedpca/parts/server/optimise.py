"""Server optimisers: the mean of the clients' steps is taken for a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

import torch
from torch import Tensor

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Server, Update, Vectors

MOMENT, SQUARE, ROUNDS = "moment", "square", "rounds"  # kept between rounds
Correction = Literal["none", "adam", "flower"]
Optimiser = Callable[[Tensor, Vectors], tuple[Tensor, dict[str, Tensor]]]  # mean step, kept -> own step, to keep


@dataclass(frozen=True)
class ServerStep:
    """Another rule, of which the step of the weights goes through an optimiser; buffers and counters are the rule's."""

    rule: Aggregate
    optimiser: Optimiser

    def __call__(self, server: Server) -> ServerStepFold:
        return ServerStepFold(server, self.rule(server), self.optimiser)

    @property
    def only_goes_on(self) -> bool:
        """From the other rule's step, and whether anybody trained."""
        return True

    def with_inner(self, change: Callable[[Aggregate], Aggregate]) -> Aggregate:
        """The same around the other rule as changed."""
        return replace(self, rule=change(self.rule))


class ServerStepFold:
    """Another rule's fold, and whether anybody trained."""

    def __init__(self, server: Server, inner: Fold, optimiser: Optimiser) -> None:
        self.start, self.memory, self.inner, self.optimiser = server.params, server.memory, inner, optimiser
        self.trained = False

    def add(self, client: ClientId, update: Update) -> None:
        """Passes an update on."""
        self.trained = self.trained or update.params is not None
        self.inner.add(client, update)

    def finish(self) -> Outcome:
        """The optimiser's step, and what it keeps; where nobody trained, all stays as it was."""
        outcome, start = self.inner.finish(), self.start.weights
        if not self.trained:
            return replace(outcome, memory={**outcome.memory, **self.memory})
        before = start.double()
        step, kept = self.optimiser(outcome.params.weights.double() - before, self.memory)
        params = replace(outcome.params, weights=(before + step).to(start.dtype))
        return replace(outcome, params=params, memory={**outcome.memory, **_as_kept(kept, start)})


def _as_kept(vectors: Vectors, like: Tensor) -> dict[str, Tensor]:
    """In the model's own type, which takes half of the room."""
    return {name: own.to(like.dtype) if own.is_floating_point() else own for name, own in vectors.items()}


@dataclass(frozen=True)
class ServerMomentum:
    """m = b m + D, a step of lr m: FedAvgM; with lr 1 and b 0 it is the mean itself."""

    lr: float
    momentum: float

    def __call__(self, step: Tensor, kept: Vectors) -> tuple[Tensor, dict[str, Tensor]]:
        if self.momentum and MOMENT in kept:
            step = self.momentum * kept[MOMENT].double() + step
        return self.lr * step, {MOMENT: step} if self.momentum else {}


@dataclass(frozen=True)
class ServerAdam:
    """A step of lr m / (sqrt v + tau): FedAdam or FedYogi (Reddi et al. 2021), which differ in how v follows D^2."""

    lr: float
    beta1: float
    beta2: float
    tau: float  # adaptivity: the smaller, the more steps are alike in all coordinates
    correction: Correction
    yogi: bool

    def __call__(self, step: Tensor, kept: Vectors) -> tuple[Tensor, dict[str, Tensor]]:
        none = torch.zeros_like(step)
        moment = self.beta1 * kept.get(MOMENT, none).double() + (1 - self.beta1) * step
        square = self._square(kept.get(SQUARE, none).double(), step.square())
        rounds = kept.get(ROUNDS, torch.zeros((), dtype=torch.int64)) + 1
        below = square.sqrt() + self.tau
        own = self.lr * self._factor(int(rounds)) * torch.where(below > 0, moment / below, 0.0)
        return own, {MOMENT: moment, SQUARE: square, ROUNDS: rounds}

    def _square(self, before: Tensor, fresh: Tensor) -> Tensor:
        """v: of Adam a running mean, of Yogi moved by a share of the new square towards it."""
        if self.yogi:
            return before - (1 - self.beta2) * fresh * (before - fresh).sign()
        return self.beta2 * before + (1 - self.beta2) * fresh

    def _factor(self, rounds: int) -> float:
        """What makes up for moments that begin at zero; Flower's counts a round more than Adam's own."""
        if self.correction == "none":
            return 1.0
        power = rounds + (self.correction == "flower")
        return sqrt(1 - self.beta2**power) / (1 - self.beta1**power)
