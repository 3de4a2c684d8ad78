"""Clients in this process: one model per worker, however many clients there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import torch
from torch import Tensor

from fedpca.core import ClientId, Failure, Method, Net, Order, Params, Recipe, Report, Shard, Site, Update
from fedpca.errors import UserError
from fedpca.loop import answer_report, answer_report_together, answer_train, answer_train_together
from fedpca.models.flat import load
from fedpca.rng import seed_of, stream
from fedpca.simulate.batched import MANY, SIZE, SMALL, can_report_together, can_team

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """As many threads as models, each with one intra-op thread: PyTorch's kernels let go of Python's lock.

    Results do not depend on the number of workers: every item is worked on by one thread alone, from a state that is
    loaded first, and results come back in the order of the items.
    """

    def __init__(self, nets: Sequence[Net]) -> None:
        self.nets = nets
        self.free: SimpleQueue[Net] = SimpleQueue()
        for net in nets:
            self.free.put(net)
        torch.set_num_threads(1)
        keep_memory()
        self.pool = ThreadPoolExecutor(len(nets), "worker", torch.set_num_threads, (1,)) if len(nets) > 1 else None

    def map(self, work: Callable[[Net, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The result of each item in order; at most two per worker are under way or waiting to be taken."""
        if self.pool is None:
            yield from (work(self.nets[0], item) for item in items)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self.pool.submit(self._borrow, work, item))
                if len(waiting) >= 2 * len(self.nets):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """Ends the threads once what is under way is done."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def _borrow(self, work: Callable[[Net, Item], Result], item: Item) -> Result:
        net = self.free.get()
        try:
            return work(net, item)
        finally:
            self.free.put(net)


def keep_memory() -> None:
    """Has glibc keep freed blocks of up to 31 MB for the next round, by freeing one: its threshold follows.

    Given back and asked for again, every page costs a fault: a fifth of a round of small clients. Nothing is touched,
    so nothing is used; other allocators do not care.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


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


def site_for(
    client: ClientId,
    shard: Shard,
    memory: MutableMapping[str, Tensor],
    net: Net,
    params: Params,
    order: Order,
    *,
    purpose: str,
    seed: int,
) -> Site:
    """What the client sees: its data and memory, the global weights loaded, its own random numbers."""
    load(net, params)
    net.module.eval()
    if net.draws:
        torch.manual_seed(seed_of(seed, "dropout", purpose, order.round, client))
    return Site(net, shard.x, shard.y, memory, order, partial(stream, seed, purpose, order.round, client))
