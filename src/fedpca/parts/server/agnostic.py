"""Weights that climb the losses: the worst mixture of clients gets the best model (AFL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from fedpca.core import ClientId, Diagnosis, Report, When
from fedpca.parts.server.diagnose import remember


@dataclass(frozen=True)
class Ascend:
    """Moves each client's note `share` up its loss, within the simplex; shares average 1, so lambda is share / clients.

    Those who report no loss, and those judged mislabeled, keep their shares, and the others share what they had.
    """

    step: float
    exponentiated: bool  # lambda exp(step l) in place of the projection of lambda + step l

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """The shares moved."""
        known = dict(remember(diagnosis, reports, when))
        given = {client: report.get("loss") for client, report in reports.items()}
        losses = {c: loss for c, loss in given.items() if isinstance(loss, float) and known[c].group != "mislabeled"}
        shares = {client: known[client].notes.get("share", 1.0) for client in losses}
        for client, share in climb(shares, losses, len(known), self).items():
            known[client] = replace(known[client], notes={**known[client].notes, "share": share})
        return known


def climb(
    shares: Mapping[ClientId, float], losses: Mapping[ClientId, float], clients: int, rule: Ascend
) -> Mapping[ClientId, float]:
    """These clients' shares after one step; their sum stays, and where it is zero all begin anew."""
    total = sum(shares.values())
    if total <= 0:
        return dict.fromkeys(shares, 1.0)
    if not rule.exponentiated:
        moved = [share + clients * rule.step * losses[client] for client, share in shares.items()]
        return dict(zip(shares, projected(moved, total), strict=True))
    top = max(loss for client, loss in losses.items() if shares[client] > 0)  # so that not all powers are zero
    raised = {client: share * exp(rule.step * min(losses[client] - top, 0.0)) for client, share in shares.items()}
    scale = total / sum(raised.values())
    return {client: scale * value for client, value in raised.items()}


def projected(values: Sequence[float], total: float) -> list[float]:
    """The nearest point whose entries are not negative and have this sum.

    >>> projected([0.5, 1.0, -2.0], 1.0)
    [0.25, 0.75, 0.0]
    """
    below, rest = 0.0, 0.0
    for count, value in enumerate(sorted(values, reverse=True), 1):
        rest += value
        if value + (total - rest) / count <= 0:
            break
        below = (total - rest) / count
    return [max(value + below, 0.0) for value in values]
