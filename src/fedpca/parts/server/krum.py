"""Krum and Multi-Krum: trust the updates that have the nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpca.core import Outcome, Params, Server
from fedpca.parts.server.robust import UpdateCollection, share_of


@dataclass(frozen=True)
class NearestNeighbours:
    """The mean by size of the updates that lie nearest to their neighbours; the others have weight zero.

    An update's score is the sum of the K - f - 2 smallest squared distances to other updates, at least one, of weights
    alone. Of equal scores the earlier client's counts as the smaller.
    """

    malicious: int | None  # f; None: a share of the clients of the round
    share: float  # this one
    keep: int | None  # how many are averaged; None: K - f

    def __call__(self, server: Server) -> NeighbourFold:
        return NeighbourFold(server.params, self)

    def malicious_of(self, count: int) -> int:
        """f among so many clients."""
        return share_of(count, self.share) if self.malicious is None else self.malicious


class NeighbourFold(UpdateCollection):
    """States waiting for their neighbours."""

    def __init__(self, start: Params, rule: NearestNeighbours) -> None:
        super().__init__(start)
        self.rule = rule

    def finish(self) -> Outcome:
        """The mean of the chosen ones."""
        if not self.states:
            return Outcome(self.start, {})
        count, malicious = len(self.states), self.rule.malicious_of(len(self.states))
        keep = min(max(1, count - malicious if self.rule.keep is None else self.rule.keep), count)
        shares = torch.zeros(count, dtype=torch.float64)
        chosen = ranked(neighbour_scores(self.gram(), malicious))[:keep]
        shares[chosen] = self.shares_by_size[chosen]
        shares /= shares.sum()
        return Outcome(self.mean(shares), dict(zip(self.states, shares.tolist(), strict=True)))


def neighbour_scores(gram: Tensor, malicious: int) -> Tensor:
    """Each update's (K,) sum of the K - f - 2 smallest squared distances to others, from inner products (K, K)."""
    lengths, count = gram.diagonal(), len(gram)
    squares = (lengths[:, None] + lengths[None, :] - 2 * gram).clamp_min(0)
    nearest = squares.fill_diagonal_(float("inf")).sort(dim=1).values  # itself comes last
    return nearest[:, : min(max(1, count - malicious - 2), count - 1)].sum(dim=1)


def ranked(scores: Tensor) -> list[int]:
    """Their places from the smallest on; of equal ones the first comes first."""
    places: list[int] = scores.argsort(stable=True).tolist()
    return places
