"""Clients in this process: one model per worker, however many clients there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from torch import Tensor

from fedpca.core import ClientId, Failure, Method, Net, Order, Params, Recipe, Report, Shard, Site, Update
from fedpca.errors import UserError
from fedpca.rng import stream
from fedpca.simulate.answer import answer_report, answer_train, site_for
from fedpca.simulate.batched import (
    MANY,
    SIZE,
    SMALL,
    answer_report_together,
    answer_train_together,
    can_report_together,
    can_team,
)
from fedpca.simulate.workers import Workers

Result = TypeVar("Result")


class InProcess:
    """Simulated clients that answer from their shards; an exception in a client's code ends the run with its trace.

    Where model and training allow it, many clients are trained together (see `parts.team`), unless `together` is off:
    that gives the very bits of clients that train alone.
    """

    def __init__(
        self, method: Method, shards: Mapping[ClientId, Shard], workers: Workers, seed: int, together: bool = True
    ) -> None:
        self.method, self.shards, self.workers, self.seed, self.together = method, shards, workers, seed, together
        self.memory: dict[ClientId, dict[str, Tensor]] = {client: {} for client in shards}
        if workers.nets[0].draws and len(workers.nets) > 1:
            raise UserError("the model draws random numbers (dropout) that workers would share: use --workers 1")

    @property
    def ids(self) -> Sequence[ClientId]:
        """Every client, in the order of its shards."""
        return list(self.shards)

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report | Failure]]:
        """Each ordered client's report."""
        recipe = self._recipe(orders)
        if recipe and self.together and can_report_together(self.workers.nets[0], recipe.report):
            return self._in_teams(answer_report_together, recipe, params, orders, "report", MANY)

        def work(net: Net, client: ClientId) -> tuple[ClientId, Report | Failure]:
            site = self._site(net, params, client, orders[client], "report")
            return client, answer_report(self.method.recipe(site.order.round), site)

        return self.workers.map(work, orders)

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update | Failure]]:
        """Each ordered client's update."""
        recipe = self._recipe(orders)
        if recipe and self.together and can_team(self.workers.nets[0], recipe.train):
            size = MANY if len(params.weights) <= SMALL else SIZE  # of small updates that many fit into memory
            return self._in_teams(answer_train_together, recipe, params, orders, "train", size)

        def work(net: Net, client: ClientId) -> tuple[ClientId, Update | Failure]:
            site = self._site(net, params, client, orders[client], "train")
            return client, answer_train(self.method.recipe(site.order.round), site)

        return self.workers.map(work, orders)

    def _recipe(self, orders: Mapping[ClientId, Order]) -> Recipe | None:
        """The recipe of the ordered round; None if nobody is ordered."""
        return next((self.method.recipe(order.round) for order in orders.values()), None)

    def _in_teams(
        self,
        answer: Callable[[Recipe, Sequence[Site]], list[Result]],
        recipe: Recipe,
        params: Params,
        orders: Mapping[ClientId, Order],
        purpose: str,
        size: int,
    ) -> Iterator[tuple[ClientId, Result]]:
        """The answers of many clients at a time; teams, and so answers, are the same for any number of workers."""
        clients = list(orders)
        teams = [clients[i : i + size] for i in range(0, len(clients), size)]

        def work(net: Net, team: list[ClientId]) -> list[Result]:
            sites = [self._site(net, params, team[0], orders[team[0]], purpose)]
            sites += [self._beside(sites[0], client, orders[client], purpose) for client in team[1:]]
            return answer(recipe, sites)

        small = len(params.weights) <= SMALL
        found = (work(self.workers.nets[0], team) for team in teams) if small else self.workers.map(work, teams)
        for team, answers in zip(teams, found, strict=True):
            yield from zip(team, answers, strict=True)

    def _beside(self, first: Site, client: ClientId, order: Order, purpose: str) -> Site:
        """Another client's site with the same model, which holds the global weights already."""
        shard = self.shards[client]
        chance = partial(stream, self.seed, purpose, order.round, client)
        return Site(first.net, shard.x, shard.y, self.memory[client], order, chance)

    def _site(self, net: Net, params: Params, client: ClientId, order: Order, purpose: str) -> Site:
        return site_for(
            client, self.shards[client], self.memory[client], net, params, order, purpose=purpose, seed=self.seed
        )
