"""How far a client's local steps go, as both ends must know it where gradients are told from models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Of SGD with momentum on mini-batches: steps of a client, and how much of its gradients they add up to."""

    lr: float
    momentum: float
    batch: int
    epochs: int

    def steps(self, size: int) -> int:
        """How many a client of this size takes in a round: a last batch of one is passed over."""
        return self.epochs * -(-max(0, size - 1) // self.batch)

    def length(self, steps: int) -> float:
        """What the weights of so many gradients sum to: lr sum_j (1 - b^j) / (1 - b), so that (x - y) / it is a mean.

        >>> Pace(lr=1.0, momentum=0.9, batch=64, epochs=1).length(2)
        2.9
        """
        carried, total = 0.0, 0.0
        for _ in range(steps):
            carried = 1 + self.momentum * carried
            total += carried
        return self.lr * total
