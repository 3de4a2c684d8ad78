"""What the privacy of a run is: its noise, what it has spent after each round, and how that is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import Any

from fedpca.core import ClientId, Clients, Method, Server
from fedpca.errors import SettingsError
from fedpca.methods.central_privacy import require_promise, with_central_noise
from fedpca.parts.accounting import Released, noise_for, spent
from fedpca.parts.client.private_report import numbers_by_round
from fedpca.runs.check import method_of
from fedpca.runs.folder import RoundLine
from fedpca.settings.experiment import Experiment
from fedpca.settings.privacy import CentralPrivacy, PrivacySettings, ReportPrivacy


@dataclass(frozen=True)
class Spending:
    """One kind of noise over a run, for the client that takes part most."""

    epsilon: float
    delta: float
    noise: float  # over the most that one client can change a number, or the mean
    releases: Sequence[int]  # after each round, since the beginning

    def after(self, round: int) -> list[Released]:
        """What was released until a round."""
        return [Released(self.noise, self.releases[round - 1])]

    def facts(self) -> dict[str, Any]:
        """For `about.json`."""
        return {"epsilon": self.epsilon, "delta": self.delta, "noise": self.noise, "releases": self.releases[-1]}


@dataclass(frozen=True)
class Privacy:
    """What a run promises; `reports` and `central` are None where there is nothing to promise."""

    settings: PrivacySettings
    reports: Spending | None
    central: Spending | None

    @property
    def both(self) -> list[tuple[str, Spending]]:
        """What there is, by name."""
        every = (("reports", self.reports), ("central", self.central))
        return [(name, own) for name, own in every if own]

    def facts(self) -> Mapping[str, object]:
        """For `about.json`; nothing where nothing is promised."""
        return {"privacy": {name: own.facts() for name, own in self.both}} if self.both else {}

    def line(self, line: RoundLine) -> RoundLine:
        """The round with the epsilon that is spent after it, of each kind and of both together."""
        if not self.both:
            return line
        round = line["round"]
        after = {name: round_up(spent(own.after(round), own.delta)) for name, own in self.both}
        return {**line, "privacy": {**after, **self._together(round)}}

    def words(self) -> Iterator[str]:
        """For people, a line for each kind."""
        if own := self.reports:
            yield f"reports: {_promise(own)}; {own.releases[-1]} numbers, noise {own.noise:.3g} of each one's range"
        if own := self.central:
            yield (
                f"weights: {_promise(own)}; {own.releases[-1]} rounds of a client, noise {own.noise:.3g} of "
                f"privacy.central.clip times the largest weight"
            )
        for epsilon in self._together(-1).values() if self.both else ():
            yield f"together: epsilon {epsilon:g}"

    def method(self, method: Method, secret: bytes) -> Method:
        """The method with noise on its mean, which only who has the secret can compute."""
        if self.central is None:
            return method
        from fedpca.parts.server.central import draws_of

        return with_central_noise(method, self.settings, self.central.noise, draws_of(secret))

    def clients(self, clients: Clients, method: Method, seed: int, without: Sequence[ClientId]) -> Clients:
        """Simulated clients with noise on their reports; the very clients where there is none."""
        own = self.settings.reports
        if own == ReportPrivacy():
            return clients
        from fedpca.simulate.private import PrivateClients

        return PrivateClients(clients, method, own, self.reports.noise if self.reports else 0.0, seed, without)

    def require_weights_alone(self, server: Server, model: str) -> None:
        """Refuses a model that sends more than weights."""
        if self.central and (count := server.params.buffers.numel()):
            raise SettingsError(
                f"privacy.central puts noise on weights, and the model {model} has {count} numbers of batch norm "
                "besides, which come from the data too: choose a model without, such as resnet8-gn or cnn-small"
            )

    def _together(self, round: int) -> dict[str, float]:
        if self.reports is None or self.central is None:
            return {}
        last = len(self.reports.releases) if round == -1 else round
        both = [*self.reports.after(last), *self.central.after(last)]
        return {"together": round_up(spent(both, min(self.reports.delta, self.central.delta)))}


def privacy_of(
    settings: PrivacySettings, method: Method, rounds: int, clients: Sequence[ClientId] | None = None
) -> Privacy:
    """What a run promises. Without its clients each is taken to be there in every round."""
    require_promise(method, settings)
    return Privacy(
        settings, _of_reports(settings.reports, method, rounds), _of_weights(settings, method, rounds, clients)
    )


def require_privacy(run: Experiment) -> None:
    """Refuses a run that cannot keep what its settings promise."""
    if run.privacy.reports.epsilon is not None or run.privacy.central.epsilon is not None:
        privacy_of(run.privacy, method_of(run), run.rounds)


def round_up(epsilon: float) -> float:
    """With four digits after the point, never less."""
    return ceil(epsilon * 1e4 - 1e-3) / 1e4


def _of_reports(own: ReportPrivacy, method: Method, rounds: int) -> Spending | None:
    if own.epsilon is None:
        return None
    releases = list(accumulate(numbers_by_round(method, rounds, own)))
    if not releases[-1]:
        return None
    return Spending(own.epsilon, own.delta, noise_for(own.epsilon, own.delta, releases[-1]), releases)


def _of_weights(
    settings: PrivacySettings, method: Method, rounds: int, clients: Sequence[ClientId] | None
) -> Spending | None:
    """Nothing is counted for a cohort that is drawn: the draw is of the run's seed, which is no secret."""
    own: CentralPrivacy = settings.central
    if own.epsilon is None:
        return None
    times = dict.fromkeys(clients or ("",), 0)
    releases = []
    for round in range(1, rounds + 1):
        for client in method.recipe(round).cohort(clients, round) if clients else ("",):
            times[client] += 1
        releases.append(max(times.values()))
    return Spending(own.epsilon, own.delta, noise_for(own.epsilon, own.delta, releases[-1]), releases)


def _promise(own: Spending) -> str:
    return f"epsilon {own.epsilon:g}, delta {own.delta:g}"
