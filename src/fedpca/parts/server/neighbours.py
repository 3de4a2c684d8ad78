"""Every client's last model kept at the server, and shown to clients that are like it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpca.core import Aggregate, ClientId, Fold, Outcome, Report, Server, Update
from fedpca.parts.client.neighbours import OWN_SCORE, SCORE
from fedpca.parts.server.identify import scaled

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ShowNeighbours:
    """Another rule; beside it each client is shown, in the next round, the last models of its best neighbours.

    The best are those of highest score: `ability` times the accuracy that they report, and the rest times how alike
    their answer to a random image is, each from 0 to 1.
    """

    rule: Aggregate
    neighbours: int
    ability: float

    def __call__(self, server: Server) -> NeighbourFold:
        return NeighbourFold(server, self.rule(server), self)


class NeighbourFold:
    """Models that are kept as they arrive."""

    def __init__(self, server: Server, inner: Fold, rule: ShowNeighbours) -> None:
        self.inner, self.rule, self.models = inner, rule, dict(server.memory)
        self.told: dict[ClientId, tuple[float, list[float]]] = {}
        for client, verdict in server.diagnosis.items():
            self._take(client, verdict.report)

    def add(self, client: ClientId, update: Update) -> None:
        """Passes the update on and keeps its model, in place of an older one."""
        self.inner.add(client, update)
        if update.params is not None:
            self.models[f"weights of {client}"] = update.params.weights
            self.models[f"buffers of {client}"] = update.params.buffers
            self._take(client, update.report)

    def finish(self) -> Outcome:
        """The other rule's outcome, the models, and who is shown which."""
        outcome, notes, shown_to = self.inner.finish(), {}, {}
        known = [client for client in self.told if f"weights of {client}" in self.models]
        for client, (own, best) in self._best(known).items():
            scores = {SCORE.format(place): score for place, (_, score) in enumerate(best, 1)}
            notes[client] = {**outcome.notes.get(client, {}), OWN_SCORE: own, **scores}
            shown_to[client] = {
                f"{place}/{name}": f"{name} of {other}"
                for place, (other, _) in enumerate(best, 1)
                for name in ("weights", "buffers")
            }
        return replace(outcome, notes={**outcome.notes, **notes}, memory=self.models, shown_to=shown_to)

    def _take(self, client: ClientId, report: Report) -> None:
        accuracy, answer = report.get("accuracy"), report.get("answer")
        if isinstance(accuracy, float) and isinstance(answer, list):
            self.told[client] = accuracy, answer

    def _best(self, known: list[ClientId]) -> dict[ClientId, tuple[float, list[tuple[ClientId, float]]]]:
        """Each client's own score, and its neighbours with theirs, the best first."""
        usual = max((len(self.told[client][1]) for client in known), default=0)
        known = [client for client in known if len(self.told[client][1]) == usual]
        if not known:
            return {}
        accuracies = np.array([self.told[client][0] for client in known])
        alike = cosines(torch.tensor([self.told[client][1] for client in known], dtype=torch.float64))
        best = {}
        for i, client in enumerate(known):
            own, scores = neighbour_scores(accuracies, alike[i].numpy(), i, self.rule.ability)
            others = sorted((j for j in range(len(known)) if j != i), key=lambda j: -scores[j])
            best[client] = own, [(known[j], scores[j]) for j in others[: self.rule.neighbours]]
        return best


def cosines(answers: Tensor) -> Tensor:
    """Cosines (K, K) between answers (K, C)."""
    lengths = answers.norm(dim=1).clamp_min(1e-12)
    found: Tensor = answers @ answers.T / (lengths[:, None] * lengths)
    return found


def neighbour_scores(accuracies: Floats, alike: Floats, own: int, ability: float) -> tuple[float, list[float]]:
    """A client's own score, and everybody's for it: accuracy and likeness, each stretched over all to [0, 1]."""
    able, near = scaled(np.stack([accuracies, alike], axis=1)).T
    scores = (ability * able + (1 - ability) * near).tolist()
    return float(ability * able[own] + 1 - ability), scores
