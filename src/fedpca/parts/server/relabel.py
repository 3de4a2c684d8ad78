"""Clients with wrong labels found by how scattered their predictions are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedpca.core import ClientId, Diagnosis, Report, Verdict, When
from fedpca.parts.mixture import in_upper_group
from fedpca.parts.server.diagnose import remember


@dataclass(frozen=True)
class FindScattered:
    """Mislabeled are the clients in the upper of two groups of summed `lid`; `noise` is the suspicion."""

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """New groups after training, new suspicions after reports."""
        known = dict(remember(diagnosis, reports, when))
        for client, report in reports.items():
            notes = known[client].notes
            if isinstance(lid := report.get("lid"), float):
                known[client] = replace(known[client], notes={**notes, "lid": notes.get("lid", 0.0) + lid})
            if isinstance(noise := report.get("noise"), float):
                known[client] = replace(known[client], suspicion=noise)
        return self._name_groups(known) if any("lid" in report for report in reports.values()) else known

    def _name_groups(self, known: dict[ClientId, Verdict]) -> Diagnosis:
        sums = {client: verdict.notes["lid"] for client, verdict in known.items() if "lid" in verdict.notes}
        high = dict(zip(sums, in_upper_group(np.array(list(sums.values()))).tolist(), strict=True))
        groups = {client: replace(known[client], group="mislabeled" if high[client] else "common") for client in sums}
        return {**known, **groups}


@dataclass(frozen=True)
class RestTheNoisy:
    """Note `rests`: 1 for clients above this share of wrong labels; if that is everybody, for the noisier half."""

    max_noise: float

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """The notes, made anew when shares are reported."""
        if not any("noise" in report for report in reports.values()):
            return diagnosis
        shares = {client: verdict.suspicion or 0.0 for client, verdict in diagnosis.items()}
        clean = {client for client, share in shares.items() if share <= self.max_noise}
        clean = clean or set(sorted(shares, key=lambda client: shares[client])[: (len(shares) + 1) // 2])
        return {c: replace(v, notes={**v.notes, "rests": float(c not in clean)}) for c, v in diagnosis.items()}
