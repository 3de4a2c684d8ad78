"""Weights by contribution: who moves another way than the others, and whom a model without him would fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedpca.core import ClientId, Outcome, Params, Server, Vectors, Verdict
from fedpca.parts.server.robust import UpdateCollection


@dataclass(frozen=True)
class ByContribution:
    """The mean with shares of d e or d + e, averaged over rounds; it needs all updates at once.

    d_k = 1 - the mean over rounds of the cosine between a client's step and the other steps' mean; e_k = 1 - the mean
    over rounds of `others`, the first round counting as zero; both over their sums. What cannot be told is even.
    """

    mode: Literal["times", "plus"]
    average_rounds: bool  # False: this round's shares alone, each at least 1e-3

    def __call__(self, server: Server) -> ContributionFold:
        return ContributionFold(server, self)


class ContributionFold(UpdateCollection):
    """States waiting to be weighed against each other."""

    def __init__(self, server: Server, rule: ByContribution) -> None:
        super().__init__(server.params)
        self.diagnosis, self.rule = server.diagnosis, rule

    def finish(self) -> Outcome:
        """The mean, its shares, and the running means that the next round goes on from."""
        absent = {client: {"absent": 1.0} for client in self.diagnosis if client not in self.states}
        if not self.states:
            return Outcome(self.start, {}, absent, shown=_vectors(self.start))
        before = [self.diagnosis.get(client, Verdict()) for client in self.states]
        last = _shares(_doubles([verdict.weight or 0.0 for verdict in before]))
        scores = _doubles([_score(verdict.report.get("others")) for verdict in before])
        seen = {"direction": cosines_to_others(self.gram(), last), "others": scores}
        means = {key: _running(before, key, values) for key, values in seen.items()}
        fresh = contributions(means["direction"], means["others"], self.rule.mode)
        means["share"] = _running(before, "share", fresh)
        shares = _shares(means["share"] if self.rule.average_rounds else fresh.clamp_min(1e-3))
        mean, notes = self.mean(shares), {**absent, **self._notes(means)}
        return Outcome(mean, self._by_client(shares), notes, shown=_vectors(mean))

    def _by_client(self, values: Tensor) -> dict[ClientId, float]:
        return dict(zip(self.states, values.tolist(), strict=True))

    def _notes(self, means: dict[str, Tensor]) -> dict[ClientId, dict[str, float]]:
        columns = {key: self._by_client(values) for key, values in means.items()}
        rounds = {client: self.diagnosis.get(client, Verdict()).notes.get("rounds", 0) + 1 for client in self.states}
        return {
            client: {
                "absent": 0.0,
                "rounds": rounds[client],
                **{key: column[client] for key, column in columns.items()},
            }
            for client in self.states
        }


def _vectors(mean: Params) -> Vectors:
    """What clients take their own state out of: where another method mixes into the global model, it is not that."""
    return {"weights": mean.weights, "buffers": mean.buffers}


def cosines_to_others(gram: Tensor, shares: Tensor) -> Tensor:
    """Per client (K,) the cosine between its step and the shared sum of the other steps; 0 where either is zero.

    All of it follows from the steps' inner products (K, K).
    """
    own, along = gram.diagonal(), gram @ shares
    towards = along - shares * own
    others = (shares @ along - 2 * shares * along + shares.square() * own).clamp_min(0)
    lengths = (own * others).sqrt()
    return torch.where(lengths > 1e-12 * own, towards / lengths, 0.0).clamp(-1, 1)


def contributions(directions: Tensor, others: Tensor, mode: str) -> Tensor:
    """Shares (K,) from mean cosines and mean scores."""
    apart, failed = _shares(1 - directions), _shares(1 - others)
    return _shares(apart * failed if mode == "times" else apart + failed)


def _shares(values: Tensor) -> Tensor:
    """Values over their sum, those below zero as zero; even if that leaves nothing."""
    values = values.clamp_min(0)
    return values / values.sum() if values.sum() > 1e-12 else torch.full_like(values, 1 / len(values))


def _running(before: list[Verdict], key: str, values: Tensor) -> Tensor:
    """Means over all rounds so far, from those before and this round's values."""
    counts = _doubles([verdict.notes.get("rounds", 0) + 1 for verdict in before])
    means = _doubles([verdict.notes.get(key, 0.0) for verdict in before])
    return means + (values - means) / counts


def _score(value: object) -> float:
    """A score from 0 to 1; 0 if none was reported."""
    return min(max(value, 0.0), 1.0) if isinstance(value, float) else 0.0


def _doubles(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
