"""The clients of one run on all workers of a Dask cluster, to the bits of one process.

A task is a batch of clients, the very batch that one process would work on at once. It is a function of its arguments:
the state of the round, the orders, and what these clients remember. So Dask may run it anywhere, and again where a
worker died. What clients remember comes back with their answers, and the run's checkpoint keeps it as always.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from fedpca.cluster.bench import fingerprint
from fedpca.cluster.connect import Link
from fedpca.cluster.grid import spec_of
from fedpca.cluster.prepared import RunSpec
from fedpca.cluster.wire import (
    Answers,
    OrderData,
    read_memory,
    read_reports,
    read_updates,
    shown_to_all,
    write_memory,
    write_orders,
    write_state,
)
from fedpca.core import ClientId, Order, Params, Report, Shard, Update
from fedpca.data.federation import Federation
from fedpca.runs.cell import Cell
from fedpca.runs.check import method_of
from fedpca.runs.run import Place
from fedpca.simulate.clients import batch_size
from fedpca.simulate.pooled import shards_for
from fedpca.simulate.workers import Workers

if TYPE_CHECKING:
    from distributed import Future

Answer = TypeVar("Answer", Report, Update)
AHEAD = 2  # batches for each thread of the cluster, under way or waiting to be taken


def spread_over(link: Link, data_dir: Path | None) -> Place:
    """Has the clients of a run train on the workers of a cluster."""

    def place(cell: Cell, federation: Federation, workers: Workers) -> SpreadClients:
        spec = spec_of(cell, data_dir, 1, 1, fingerprint(federation))
        return SpreadClients(link, spec, cell, federation, workers)

    return place


class SpreadClients:
    """Simulated clients that answer from the workers of a cluster."""

    def __init__(self, link: Link, spec: RunSpec, cell: Cell, federation: Federation, workers: Workers) -> None:
        self.link, self.spec, self.name, self.net = link, spec, cell.name, workers.nets[0]
        self.method, self.shards, self.seed = method_of(cell.settings), federation.shards, cell.seed
        self.held, self.poisoned = shards_for(self.method, federation.shards), False
        self.memory: dict[ClientId, dict[str, Tensor]] = {client: {} for client in self.held}

    def with_shards(self, shards: Mapping[ClientId, Shard]) -> SpreadClients:
        """The same clients, who remember the same, with poisoned data, which the workers make themselves."""
        other = copy(self)
        other.shards, other.held, other.poisoned = shards, shards_for(self.method, shards), True
        return other

    @property
    def ids(self) -> Sequence[ClientId]:
        """Every client, in the order of its shards."""
        return list(self.held)

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        """How many samples each has."""
        return {client: len(shard.y) for client, shard in self.held.items()}

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report]]:
        """Each ordered client's report."""
        return self._answers("report", params, orders, read_reports)

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update]]:
        """Each ordered client's update."""
        return self._answers("train", params, orders, lambda answers: read_updates(answers, params.lengths))

    def _answers(
        self,
        purpose: str,
        params: Params,
        orders: Mapping[ClientId, Order],
        read: Callable[[Answers], list[Answer]],
    ) -> Iterator[tuple[ClientId, Answer]]:
        """The ordered clients' answers in their order, whichever worker was quicker."""
        if not orders:
            return
        round, shown = next(iter(orders.values())).round, shown_to_all(orders)
        size, clients = batch_size(purpose, self.net, self.method, round), list(orders)
        state = self.link.keep(write_state(params, shown))
        waiting: deque[tuple[list[ClientId], Future]] = deque()
        try:
            for start in range(0, len(clients), size):
                batch = clients[start : start + size]
                told = write_orders({client: orders[client] for client in batch}, shown)
                waiting.append((batch, self._ask(purpose, state, told)))
                if len(waiting) >= AHEAD * self.link.threads:
                    yield from self._take(*waiting.popleft(), read)
            while waiting:
                yield from self._take(*waiting.popleft(), read)
        finally:
            self.link.client.cancel([state, *(future for _, future in waiting)], force=True)

    def _ask(self, purpose: str, state: Future, orders: Mapping[ClientId, OrderData]) -> Future:
        memory = write_memory({client: self.memory[client] for client in orders})
        what = (self.spec, purpose, self.poisoned, state, orders, memory)
        return self.link.submit("answer", *what, label=self.name.replace(" ", "_"))

    def _take(
        self, batch: list[ClientId], future: Future, read: Callable[[Answers], list[Answer]]
    ) -> Iterator[tuple[ClientId, Answer]]:
        answers: Answers = self.link.value(future, self.name)
        self.memory.update(read_memory(answers["memory"], batch))
        yield from zip(batch, read(answers), strict=True)
