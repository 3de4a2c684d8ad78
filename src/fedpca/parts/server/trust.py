"""Weights by how fast each client's loss falls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp

from fedpca.core import ClientId, Diagnosis, Report, When
from fedpca.parts.server.diagnose import remember

LAST, SHARE = "last_loss", "share"  # notes: the loss of the round before, and what a client counts (`weigh.by_share`)
TINY = 1e-12  # a loss below it counts as this


@dataclass(frozen=True)
class TrustFallingLosses:
    """Notes for each client exp(eta q / sum |q|) as its `share`, q the fall of its loss over the loss that is left.

    A client that says its loss for the first time has q = 0. `published`: over sum q, whose sign can turn the order of
    the clients round.
    """

    eta: float
    published: bool

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """New shares for those who say their loss."""
        known = dict(remember(diagnosis, reports, when))
        given = {client: report.get("symmetric_loss") for client, report in reports.items()}
        losses = {client: max(loss, TINY) for client, loss in given.items() if isinstance(loss, float)}
        falls = {client: known[client].notes.get(LAST, loss) / loss - 1 for client, loss in losses.items()}
        for client, share in trust_shares(falls, self.eta, self.published).items():
            notes = {**known[client].notes, LAST: losses[client], SHARE: share}
            known[client] = replace(known[client], notes=notes)
        return known


def trust_shares(falls: Mapping[ClientId, float], eta: float, published: bool) -> dict[ClientId, float]:
    """exp(eta q / sum |q|) over the largest; all 1 where nothing changed."""
    total = sum(falls.values() if published else map(abs, falls.values()))
    if abs(total) <= TINY * max(map(abs, falls.values()), default=0.0):
        return dict.fromkeys(falls, 1.0)
    powers = {client: eta * fall / total for client, fall in falls.items()}
    top = max(powers.values())
    return {client: exp(power - top) for client, power in powers.items()}
