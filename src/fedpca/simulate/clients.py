"""Clients in this process: one model per worker, however many clients there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from torch import Tensor

from fedpca.core import ClientId, Clients, Failure, Method, Net, Order, Params, Recipe, Report, Shard, Site, Update
from fedpca.errors import UserError
from fedpca.parts.abilities import ability
from fedpca.rng import stream
from fedpca.simulate.answer import answer_report, answer_train, site_for
from fedpca.simulate.batched import Batching, report_batching, training_batching
from fedpca.simulate.pooled import shards_for
from fedpca.simulate.workers import Workers

Answer = TypeVar("Answer")
WHILE = {"report": "while it reported", "train": "while it trained"}


BATCHING: Mapping[str, Callable[[Net, Recipe], Batching[Any] | None]] = {
    "report": report_batching,
    "train": training_batching,
}


def batch_size(purpose: str, net: Net, method: Method, round: int) -> int:
    """How many clients, one after another in their order, are worked on at once."""
    batching = None if method.pools_data else BATCHING[purpose](net, method.recipe(round))
    return batching.size if batching else 1


class Simulated(Clients, Protocol):
    """Simulated clients, wherever they train; the checkpoint of a run keeps what they remember."""

    method: Method
    shards: Mapping[ClientId, Shard]
    seed: int
    memory: dict[ClientId, dict[str, Tensor]]

    def with_shards(self, shards: Mapping[ClientId, Shard]) -> Clients:
        """The same clients, who remember the same, with other data: those that attackers poisoned."""


class InProcess:
    """Simulated clients that answer from their shards; an exception in a client's code says whose it was, and when.

    Where model and method allow it, many clients are worked on at once (see `batched`), unless `batched` is off: that
    gives the very bits of clients that train alone.

    >>> from fedpca import Experiment, InProcess, Workers, build, federate, load, method_of
    >>> experiment = Experiment(data={"clients": 4})
    >>> federation = federate(experiment, load(experiment.data))
    >>> workers = Workers([build("mlp", federation.shape, len(federation.classes), seed=0)])
    >>> InProcess(method_of(experiment), federation.shards, workers, seed=0).ids
    ['0', '1', '2', '3']
    """

    def __init__(
        self, method: Method, shards: Mapping[ClientId, Shard], workers: Workers, seed: int, batched: bool = True
    ) -> None:
        self.method, self.shards, self.workers, self.seed = method, shards, workers, seed
        self.batched = batched and not method.pools_data  # one client with all data is no small one
        self.held = shards_for(method, shards)  # `shards` are the clients' own, whatever the method makes of them
        self.memory: dict[ClientId, dict[str, Tensor]] = {client: {} for client in self.held}
        if workers.nets[0].draws and len(workers.nets) > 1:
            raise UserError("the model draws random numbers (dropout) that workers would share: use --workers 1")
        if any(ability(stage.recipe.report, "needs_features") for stage in method.stages):
            workers.nets[0].require_features(method.name)

    def with_shards(self, shards: Mapping[ClientId, Shard]) -> InProcess:
        """The same clients, who remember the same, with other data."""
        other = InProcess(self.method, shards, self.workers, self.seed, self.batched)
        other.memory = self.memory
        return other

    @property
    def ids(self) -> Sequence[ClientId]:
        """Every client, in the order of its shards."""
        return list(self.held)

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        """How many samples each has."""
        return {client: len(shard.y) for client, shard in self.held.items()}

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report | Failure]]:
        """Each ordered client's report."""
        return self._answers("report", params, orders, answer_report)

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update | Failure]]:
        """Each ordered client's update."""
        return self._answers("train", params, orders, answer_train)

    def _answers(
        self,
        purpose: str,
        params: Params,
        orders: Mapping[ClientId, Order],
        answer: Callable[[Recipe, Site], Answer],
    ) -> Iterator[tuple[ClientId, Answer]]:
        """The ordered clients' answers; batches, and so answers, are the same for any number of workers."""
        if not orders:
            return
        recipe = self.method.recipe(next(iter(orders.values())).round)
        batching = BATCHING[purpose](self.workers.nets[0], recipe) if self.batched else None
        batching = batching or Batching(lambda sites: [answer(recipe, site) for site in sites], 1)
        clients = list(orders)
        batches = [clients[i : i + batching.size] for i in range(0, len(clients), batching.size)]

        def work(net: Net, batch: list[ClientId]) -> list[Answer]:
            try:
                return batching.answer(self._sites(net, params, batch, orders, purpose))
            except Exception as error:
                error.add_note(f"at {_named(batch)}, {WHILE[purpose]} in round {orders[batch[0]].round}")
                raise

        answers = self.workers.map(work, batches, threads=batching.threads)
        for batch, some in zip(batches, answers, strict=True):
            yield from zip(batch, some, strict=True)

    def _sites(
        self, net: Net, params: Params, clients: Sequence[ClientId], orders: Mapping[ClientId, Order], purpose: str
    ) -> list[Site]:
        """The sites of some clients, which share the model; it is loaded once."""
        first, *others = clients
        own = self.held[first], self.memory[first]
        sites = [site_for(first, *own, net, params, orders[first], purpose=purpose, seed=self.seed)]
        for client in others:
            shard, order = self.held[client], orders[client]
            rng = partial(stream, self.seed, purpose, order.round, client)
            sites.append(Site(net, shard.x, shard.y, self.memory[client], order, rng))
        return sites


def _named(clients: Sequence[ClientId]) -> str:
    """Whose code it was, as far as that is known: small clients are worked on together."""
    if len(clients) == 1:
        return f"client {clients[0]}"
    return f"one of the {len(clients)} clients {clients[0]} to {clients[-1]}"
