"""Simulated clients whose reports get clipped and noise, as those of real sites do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedpca.core import ClientId, Clients, Failure, Method, Order, Params, Report, Update
from fedpca.parts.client.private_report import Gauss, privatize
from fedpca.rng import stream
from fedpca.screening import Claims, claims_of
from fedpca.settings.privacy import ReportPrivacy


@dataclass(frozen=True)
class PrivateClients:
    """Other clients with noise on what they say; the noise is of the run's seed, so that the run can be repeated."""

    clients: Clients
    method: Method
    privacy: ReportPrivacy
    noise: float  # over a number's range, for an epsilon
    seed: int
    without: Collection[ClientId] = ()  # who does as it likes: attackers

    @property
    def ids(self) -> Sequence[ClientId]:
        return self.clients.ids

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        return self.clients.sizes

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report | Failure]]:
        """Each ordered client's report, with noise."""
        for client, reply in self.clients.report(params, orders):
            if isinstance(reply, Failure) or client in self.without:
                yield client, reply
            else:
                claims = claims_of(self.method.recipe(orders[client].round).report)
                yield client, self._private(reply, claims, "report", orders[client].round, client)

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update | Failure]]:
        """Each ordered client's update, its report with noise."""
        for client, reply in self.clients.train(params, orders):
            if isinstance(reply, Failure) or client in self.without:
                yield client, reply
            else:
                claims = claims_of(self.method.recipe(orders[client].round).train)
                report = self._private(reply.report, claims, "train", orders[client].round, client)
                yield client, replace(reply, report=report)

    def _private(self, report: Report, claims: Claims, half: str, round: int, client: ClientId) -> Report:
        gauss = _gauss(stream(self.seed, "privacy", half, round, client))
        return privatize(report, self.privacy, claims, gauss, self.noise)


def _gauss(rng: torch.Generator) -> Gauss:
    return lambda: torch.randn((), generator=rng, dtype=torch.float64).item()
