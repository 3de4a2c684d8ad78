"""Who takes part in a round."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedpca.core import ClientId
from fedpca.rng import numbers


def everyone(clients: Sequence[ClientId], round: int) -> Sequence[ClientId]:
    """All clients."""
    return clients


@dataclass(frozen=True)
class SampleClients:
    """A fresh random share of the clients each round, at least one, in the clients' order."""

    share: float
    seed: int

    def __call__(self, clients: Sequence[ClientId], round: int) -> Sequence[ClientId]:
        count = max(1, int(self.share * len(clients) + 0.5))
        chosen = numbers(self.seed, "cohort", round).choice(len(clients), count, replace=False)
        return [clients[i] for i in sorted(chosen)]
