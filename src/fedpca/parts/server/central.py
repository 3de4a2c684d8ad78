"""Differential privacy at the server: each update shortened, noise on the mean by the largest weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import torch
from numpy.random import Generator, Philox
from torch import Tensor

from fedpca.core import NOBODY, Aggregate, ClientId, Fold, Order, Outcome, Params, Server, Update
from fedpca.parts.server.bounded import length, shortened

SAFE = 1 - 1e-6  # of the length: rounding shall not make an update longer than it may be

Draw = Callable[[int, bytes], Generator]  # the round, and the bytes of the mean without noise -> random numbers


@dataclass(frozen=True)
class CentralNoise:
    """A mean whose weights no update changes, of updates of at most one length, with normal noise on its weights.

    Every client counts as one sample of full reliability, and who trained on nothing sends the model as it is: then the
    weights come from the server's verdicts alone. One client's update moves the mean by at most its weight times the
    length. The noise is in proportion to the largest weight.
    """

    rule: Aggregate
    clip: float
    noise: float  # deviation over the largest weight times the length
    draw: Draw
    idle: Callable[[Order], bool] | None  # see `abilities.SelectsNothing`

    def __call__(self, server: Server) -> NoisyFold:
        return NoisyFold(server, self.rule(server), self)


class NoisyFold:
    """Passes shortened updates on."""

    def __init__(self, server: Server, inner: Fold, rule: CentralNoise) -> None:
        self.server, self.inner, self.rule = server, inner, rule

    def add(self, client: ClientId, update: Update) -> None:
        """Passes an update on without anything of it but its step."""
        verdict = self.server.diagnosis.get(client, NOBODY)
        order = Order(self.server.round + 1, self.server.round + 1, verdict)
        if self.rule.idle and self.rule.idle(order):  # the server knows: it asked for nothing
            self.inner.add(client, Update(None, 0))
        else:
            self.inner.add(client, Update(self._shortened(update.params), 1))

    def finish(self) -> Outcome:
        """The mean with noise; where nobody has weight, the old model."""
        outcome = self.inner.finish()
        most = max((outcome.weights or {}).values(), default=0.0)
        if not most:
            return outcome
        weights = outcome.params.weights
        rng = self.rule.draw(self.server.round + 1, weights.numpy().tobytes())
        noise = rng.standard_normal(len(weights)) * (self.rule.noise * self.rule.clip * most)
        blurred = (weights.double() + torch.from_numpy(noise)).to(weights.dtype)
        return replace(outcome, params=replace(outcome.params, weights=blurred))

    def _shortened(self, params: Params | None) -> Params:
        start = self.server.params
        if params is None:
            return start
        return replace(start, weights=self._step(params.weights))

    def _step(self, weights: Tensor) -> Tensor:
        start, most = self.server.params.weights, self.rule.clip * SAFE
        own = length(weights, start)
        return weights if own <= most else shortened(weights, start, most / own)


def draws_of(secret: bytes) -> Draw:
    """Noise that only who has the secret can compute: the same for the same round and mean, new for any other."""

    def draw(round: int, mean: bytes) -> Generator:
        place = blake2b(secret + round.to_bytes(8, "little") + mean, digest_size=16).digest()
        return np.random.Generator(Philox(key=int.from_bytes(place, "little")))

    return draw
