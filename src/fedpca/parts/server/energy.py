"""Clients weighed by their share of images of high energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedpca.core import NOBODY, ClientId, Diagnosis, Report, Update, When
from fedpca.parts.client.energy import LEVEL
from fedpca.parts.server.diagnose import remember
from fedpca.parts.server.weigh import Count

TINY = 1e-9  # what a client counts of its samples if all are noisy: if that is everybody, sizes decide as in FedAvg


@dataclass(frozen=True)
class NoteHighEnergy:
    """Notes for those who report energies from where on an energy is high: a percentile of all of them."""

    percentile: float

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """The energies themselves are not kept."""
        given = {client: report["energy"] for client, report in reports.items() if "energy" in report}
        others = {
            client: {key: value for key, value in report.items() if key != "energy"}
            for client, report in reports.items()
        }
        known = dict(remember(diagnosis, others, when))
        if not given:
            return known
        level = energy_level([values for values in given.values() if isinstance(values, list)], self.percentile)
        for client in given:
            verdict = known.get(client, NOBODY)
            known[client] = replace(verdict, notes={**verdict.notes, LEVEL: level})
        return known


def energy_level(energies: list[list[float]], percentile: float) -> float:
    """The percentile of all clients' energies, linear between them."""
    return float(np.percentile(np.concatenate(energies), percentile))


@dataclass(frozen=True)
class ByCleanShare:
    """N; from `threshold` on of noisy samples N times the clean share, at most `effect`; a share counts for good."""

    threshold: float
    effect: float

    def __call__(self, diagnosis: Diagnosis) -> Count:
        """The counts by this round's shares, or those said earlier."""
        earlier = {client: verdict.report.get("noisy", 0.0) for client, verdict in diagnosis.items()}

        def count(client: ClientId, update: Update) -> float:
            noisy = update.report.get("noisy", earlier.get(client, 0.0))
            return update.size * self.factor(noisy if isinstance(noisy, float) else 0.0)

        return count

    def factor(self, noisy: float) -> float:
        """What of a client's samples counts, given its share of noisy ones."""
        return 1.0 if noisy < self.threshold else max(min(self.effect, 1 - noisy), TINY)
