"""Weights by generalisation gap: who loses when going from the own model to the global one gets more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedpca.core import ClientId, Diagnosis, Report, When
from fedpca.parts.server.diagnose import remember
from fedpca.parts.server.weigh import Count


@dataclass(frozen=True)
class RaiseByGap:
    """Moves each client's note `share` by its gap, in steps that shrink to nothing over the run."""

    step: float
    center_gaps: bool

    @property
    def reads_rounds(self) -> bool:
        """That is where the steps end."""
        return self.step > 0

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """The shares moved, among those who report a gap and are not judged mislabeled."""
        known = dict(remember(diagnosis, reports, when))
        given = {client: report.get("gap") for client, report in reports.items()}
        gaps = {c: gap for c, gap in given.items() if isinstance(gap, float) and known[c].group != "mislabeled"}
        shares = {client: verdict.notes.get("share", 1.0) for client, verdict in known.items()}
        step = self.step * (1 - (when.round - 1) / when.rounds)
        for client, share in move_shares(shares, gaps, step, self.center_gaps).items():
            known[client] = replace(known[client], notes={**known[client].notes, "share": share})
        return known


def move_shares(
    shares: Mapping[ClientId, float], gaps: Mapping[ClientId, float], step: float, center_gaps: bool
) -> Mapping[ClientId, float]:
    """The shares of those with a gap, moved by up to `step` in its direction, then scaled so that all average 1 again.

    Who has no gap keeps his share. Those that fall below zero are zero; equal gaps move nothing if they are centered.
    """
    middle = sum(gaps.values()) / len(gaps) if gaps and center_gaps else 0.0
    moves = {client: gap - middle for client, gap in gaps.items()}
    largest = max(map(abs, moves.values()), default=0.0)
    if largest <= 1e-9 * max(map(abs, gaps.values()), default=0.0):
        return {}
    moved = {client: shares[client] + step * move / largest for client, move in moves.items()}
    had, total = sum(shares[client] for client in gaps), sum(moved.values())
    if total <= 0:
        return {}
    left = len(shares) - sum(share for client, share in shares.items() if client not in gaps)
    scale = (left if left > 0 else had) / total  # clipping may have left the others more than there is
    return {client: max(scale * share, 0.0) for client, share in moved.items()}


def by_share(diagnosis: Diagnosis) -> Count:
    """The client's note `share`; 1 before there is one."""
    shares = {client: verdict.notes.get("share", 1.0) for client, verdict in diagnosis.items()}
    return lambda client, update: shares.get(client, 1.0)
