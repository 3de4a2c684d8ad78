"""Clients some of whom attack, wherever the others answer from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from fedpca.core import ClientId, Clients, Failure, Order, Params, Report, Shard, Update
from fedpca.errors import SettingsError, nearest
from fedpca.rng import numbers, stream
from fedpca.screening import claims_of
from fedpca.settings.attack import AttackSettings
from fedpca.settings.base import rounded
from fedpca.simulate.attack.forging import Attack, View
from fedpca.simulate.attack.kinds import attacks_of
from fedpca.simulate.clients import Simulated

if TYPE_CHECKING:
    from fedpca.core import Method

Answer = TypeVar("Answer")


def attackers_of(
    settings: AttackSettings, clients: Sequence[ClientId], common: Sequence[ClientId], seed: int
) -> list[ClientId]:
    """Who attacks: those that are named, else so many drawn from the common clients, or from all if these are too few.

    >>> from fedpca.settings.attack import AttackSettings
    >>> attackers_of(AttackSettings(kind="size", clients="b"), ["a", "b"], ["a", "b"], seed=0)
    ['b']
    """
    if not settings.is_on:
        return []
    if strangers := set(settings.clients) - set(clients):
        name = min(strangers)
        raise SettingsError(f"attack.clients: there is no client {name!r}{nearest(name, clients)}")
    if settings.clients:
        return [client for client in clients if client in settings.clients]
    count = max(1, rounded(settings.share * len(clients)))
    among = list(common if len(common) >= count else clients)
    drawn = numbers(seed, "attackers").choice(len(among), count, replace=False)
    return [client for client in clients if client in {among[place] for place in drawn}]


@dataclass(frozen=True)
class AttackedClients:
    """The clients, some of whom attack from a round on; before it, and the others, answer honestly."""

    honest: Clients
    poisoned: Clients  # the same, with the data that attackers train on
    method: Method
    attackers: Sequence[ClientId]
    attacks: Sequence[Attack]
    since: int
    seed: int

    @property
    def ids(self) -> Sequence[ClientId]:
        return self.honest.ids

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        """As they said when they joined."""
        said = [attack.joins_with for attack in self.attacks if attack.joins_with is not None]
        return {**self.honest.sizes, **(dict.fromkeys(self.attackers, said[-1]) if said else {})}

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report | Failure]]:
        """Each ordered client's report, or what an attacker says in its place."""
        if not self._is_on(orders):
            yield from self.honest.report(params, orders)
            return
        for client, report in self.poisoned.report(params, orders):
            if client in self.attackers and not isinstance(report, Failure):
                yield client, self._lie(report, orders[client], after_training=False)
            else:
                yield client, report

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update | Failure]]:
        """Each ordered client's update, or what an attacker sends in its place."""
        if not self._is_on(orders):
            yield from self.honest.train(params, orders)
            return
        replies = self.poisoned.train(params, orders)
        together = any(attack.sees_others for attack in self.attacks)
        for some in [list(replies)] if together else ([reply] for reply in replies):
            mine = {c: own for c, own in some if c in self.attackers and isinstance(own, Update)}
            others = [own.params for c, own in some if c not in mine and isinstance(own, Update) and own.params]
            forged = self._forge(params, orders, mine, others) if mine else {}
            yield from ((client, forged.get(client, reply)) for client, reply in some)

    def _is_on(self, orders: Mapping[ClientId, Order]) -> bool:
        return any(order.round >= self.since for order in orders.values())

    def _lie(self, report: Report, order: Order, after_training: bool) -> Report:
        recipe = self.method.recipe(order.round)
        bounds = claims_of(recipe.train if after_training else recipe.report).bounds
        for attack in self.attacks:
            report = attack.lie(report, bounds) if attack.lie else report
        return report

    def _forge(
        self, params: Params, orders: Mapping[ClientId, Order], mine: Mapping[ClientId, Update], others: list[Params]
    ) -> Mapping[ClientId, Update]:
        """What the attackers send, one part of the attack after another."""
        rng = {client: stream(self.seed, "attack", orders[client].round, client) for client in mine}
        told = {c: self._lie(own.report, orders[c], after_training=True) for c, own in mine.items()}
        mine = {c: replace(own, report=told[c]) for c, own in mine.items()}
        for forge in (attack.forge for attack in self.attacks if attack.forge):
            mine = {c: forge(own, View(params, mine, others, rng[c])) for c, own in mine.items()}
        return mine


def under_attack(clients: Simulated, settings: AttackSettings, attackers: Sequence[ClientId], classes: int) -> Clients:
    """The clients with their attackers; the very clients where nobody attacks."""
    if not attackers:
        return clients
    poisoned = clients.with_shards(poisoned_shards(clients.shards, settings, attackers, classes))
    own = (clients.method, tuple(attackers), attacks_of(settings, classes), settings.since, clients.seed)
    return AttackedClients(clients, poisoned, *own)


def poisoned_shards(
    shards: Mapping[ClientId, Shard], settings: AttackSettings, attackers: Sequence[ClientId], classes: int
) -> Mapping[ClientId, Shard]:
    """All clients' data, with what the attackers train on in place of theirs."""
    poisoned = dict(shards)
    for client in attackers:
        for poison in (attack.poison for attack in attacks_of(settings, classes) if attack.poison):
            poisoned[client] = poison(poisoned[client])
    return poisoned
