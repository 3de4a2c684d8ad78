"""What a Dask worker keeps of a run whose clients train there, and how they answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from queue import Empty, SimpleQueue
from threading import Lock

import torch

from fedpca.cluster.prepared import RunSpec, address, cell_of, data_of
from fedpca.cluster.wire import Answers, OrderData, read_memory, read_orders, read_state, write_answers
from fedpca.core import ClientId, Failure
from fedpca.data.federation import Federation
from fedpca.errors import UserError
from fedpca.models.build import GENERATOR, build_model
from fedpca.models.pretrained import weights_of
from fedpca.runs.attacked import attackers_in
from fedpca.runs.check import method_of
from fedpca.runs.run import trying_in
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers


class _Bench:
    """The clients of one run, once for each thread that asks: a model each, and the data in common."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.cell = spec, cell_of(spec)
        self.federation = data_of(self.cell, spec)[1]
        self.free: SimpleQueue[InProcess] = SimpleQueue()
        self.poisoned = attackers_in(self.cell.settings, self.federation).poisoned_shards()
        if spec["labels"] != fingerprint(self.federation):
            raise UserError(
                f"the Dask worker {address()} has other data of {self.cell.name} than this machine, or divides them "
                "otherwise among the clients: both must have the same files and versions"
            )

    @contextmanager
    def borrow(self, poisoned: bool) -> Iterator[InProcess]:
        """Clients that nobody else uses, with the data that the attackers have poisoned or without."""
        try:
            clients = self.free.get_nowait()
        except Empty:
            clients = self._make()
        try:
            yield clients.with_shards(self.poisoned) if poisoned else clients
        finally:
            self.free.put(clients)

    def _make(self) -> InProcess:
        model, federation, seed = self.cell.settings.model, self.federation, self.cell.seed
        place = (federation.shape, len(federation.classes), seed, weights_of(model), self.cell.settings.device)
        return InProcess(method_of(self.cell.settings), federation.shards, Workers([build_model(model, *place)]), seed)


class _Benches:
    """The bench of the run that was asked for last."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.last: _Bench | None = None

    def of(self, spec: RunSpec) -> _Bench:
        with self.lock:
            if self.last is None or self.last.spec != spec:
                self.last = None  # first: two might not fit into memory
                self.last = _Bench(spec)
            return self.last


_benches = _Benches()


def answer(
    spec: RunSpec,
    purpose: str,
    poisoned: bool,
    state: bytes,
    orders: Mapping[ClientId, OrderData],
    memory: Mapping[ClientId, bytes],
) -> Answers:
    """What some clients answer who report or train, and what they remember afterwards."""
    bench, (params, shown) = _benches.of(spec), read_state(state)
    told = read_orders(orders, shown)
    with bench.borrow(poisoned) as clients, trying_in(bench.cell, f"round {next(iter(told.values())).round}"):
        clients.memory.update(read_memory(memory, list(told)))
        ask = clients.report if purpose == "report" else clients.train
        with GENERATOR if clients.workers.nets[0].draws else nullcontext():
            answers = [own for _, own in ask(params, told) if not isinstance(own, Failure)]
        return write_answers(answers, {client: clients.memory[client] for client in told})


def fingerprint(federation: Federation) -> str:
    """A digest of the clients, their labels and their first images."""
    digest = sha256()
    for client, shard in federation.shards.items():
        digest.update(f"{client!r} {shard.y.tolist()}".encode())
        digest.update(shard.x[torch.tensor([0])].contiguous().numpy().tobytes())
    return digest.hexdigest()
