"""Who attacks a run, and what comes of it, for the record alone: the part of the truth that an attack adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedpca.core import ClientId, Clients, Params, Server, Shard
from fedpca.data.federation import Federation
from fedpca.errors import SettingsError
from fedpca.runs.evaluate import probabilities
from fedpca.runs.folder import AttackLine, RoundLine
from fedpca.settings.attack import AttackSettings
from fedpca.settings.experiment import Experiment
from fedpca.simulate.attack.clients import attackers_of, poisoned_shards, under_attack
from fedpca.simulate.attack.kinds import attacks_of
from fedpca.simulate.clients import Simulated
from fedpca.simulate.workers import Workers


@dataclass(frozen=True)
class Attackers:
    """Who attacks, and how; only evaluation may read it."""

    settings: AttackSettings
    clients: Sequence[ClientId]
    federation: Federation

    def poisoned_shards(self) -> Mapping[ClientId, Shard]:
        """All clients' data, with what the attackers train on in place of theirs."""
        classes = len(self.federation.classes)
        return poisoned_shards(self.federation.shards, self.settings, self.clients, classes)

    def join(self, clients: Simulated) -> Clients:
        """The clients with the attackers among them; the very clients where nobody attacks."""
        return under_attack(clients, self.settings, self.clients, len(self.federation.classes))

    def line(self, line: RoundLine, server: Server, pool: Workers, tested: bool) -> RoundLine:
        """The round with what the attackers gained; as it is where nobody attacks."""
        if not self.clients:
            return line
        found: AttackLine = {
            "clients": list(self.clients) if server.round >= self.settings.since else [],
            "success": self._success(server.params, pool) if tested else None,
            "weight": self._weight(server),
            **self._judged(server),
        }
        return {**line, "attack": found}

    def _weight(self, server: Server) -> float | None:
        """What the attackers weigh together."""
        if server.weights is None:
            return None
        return float(sum(server.weights.get(client, 0.0) for client in self.clients))

    def _judged(self, server: Server) -> AttackLine:
        """How many attackers, and how many honest clients with right labels, are judged mislabeled."""
        judged = {client for client, verdict in server.diagnosis.items() if verdict.group == "mislabeled"}
        if all(verdict.group is None for verdict in server.diagnosis.values()):
            return {"judged": None, "innocents_judged": None}
        wrong = self.federation.truth.mislabeled
        innocents = None if wrong is None else sorted(judged - {*self.clients, *wrong})
        return {"judged": sorted(judged & {*self.clients}), "innocents_judged": innocents}

    def _success(self, params: Params, pool: Workers) -> float | None:
        """The share of marked test images of other classes that are called the target; None without a backdoor."""
        marks = [own for own in attacks_of(self.settings, len(self.federation.classes)) if own.mark]
        if not marks or marks[-1].mark is None:
            return None
        mark, target = marks[-1].mark, marks[-1].target
        fooled = []
        for test in self.federation.tests.values():
            others = torch.nonzero(test.y != target).flatten()
            marked = Shard(mark(test.x[others]), test.y[others])
            fooled.append(probabilities(pool, params, marked).argmax(axis=1) == target)
        return float(np.concatenate(fooled).mean())


def attackers_in(experiment: Experiment, federation: Federation) -> Attackers:
    """Who attacks; refuses attackers that there are not, and a target that is no class."""
    settings, truth = experiment.attack, federation.truth
    if settings.is_on and settings.target >= (count := len(federation.classes)):
        raise SettingsError(f"attack.target = {settings.target}, but there are {count} classes, counted from 0")
    special = {*truth.rare, *(truth.mislabeled or ())}
    common = [client for client in federation.shards if client not in special]
    return Attackers(
        settings, attackers_of(settings, list(federation.shards), common, experiment.data.seed), federation
    )


def attack_words(experiment: Experiment, federation: Federation) -> str:
    """Who does what, and from which round on; nothing where nobody attacks."""
    settings, clients = experiment.attack, attackers_in(experiment, federation).clients
    if not clients:
        return ""
    who = f"client{'s' * (len(clients) > 1)} {', '.join(clients)}"
    return f"{settings.words} by {who} from round {settings.since} on"


def attack_facts(attackers: Attackers) -> Mapping[str, object]:
    """What `about.json` says of an attack; nothing where there is none."""
    settings = attackers.settings
    if not attackers.clients:
        return {}
    return {"attack": {"clients": list(attackers.clients), "words": settings.words, "since": settings.since}}
