"""NVFlare's clients as an engine: a line to each, with a thread that brings messages and fetches their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import count
from queue import Empty, Queue
from threading import Event, Lock, Thread
from typing import Any

from nvflare.collab import CollabCallError
from nvflare.collab.api.proxy import Proxy

from fedpca.core import Failure
from fedpca.errors import WireError
from fedpca.nvflare.wire import Packed, pack, unpack
from fedpca.sites.clients import LATE, LOST
from fedpca.sites.engine import NodeId
from fedpca.sites.messages import HELLO, Content

SHORT = 12.0  # seconds for a call that carries nothing
PATIENCE = 4.0  # seconds that a site holds the question whether its answer is ready, until it is
PULSE = 3.0  # seconds between two calls to a site that has nothing to do
PAUSE = 1.0  # seconds after a call that failed
UNREACHABLE, SILENT = 8.0, 60.0  # seconds until a site is gone: its calls are refused; or are not answered
Call = Callable[..., Any]  # of a method that a site publishes, with the seconds that it may take
Replies = dict[str, Content | Failure]


class LegEndedError(Exception):
    """The job ends here, between two rounds; the run goes on in the next job."""


@dataclass(frozen=True)
class Order:
    """A message on its way to a site."""

    number: str
    kind: str
    packed: Packed
    end: float  # until when its answer is waited for


@dataclass
class Line:
    """One site: whether it is there, and the messages to it, one after another."""

    name: str
    call: Call
    replies: Replies  # of all lines
    lock: Lock
    closed: Event
    arrived: Event  # set by every reply
    orders: Queue[Order] = field(default_factory=Queue)
    heard: float = 0.0  # when it last answered a call
    limit: float = UNREACHABLE  # seconds of silence after which it is gone, as its last failure was

    def is_there(self) -> bool:
        """Whether it answered lately."""
        return bool(self.heard) and time.monotonic() - self.heard < self.limit

    def serve(self) -> None:
        """Brings messages and fetches answers; shows in between that the site is there."""
        while not self.closed.is_set():
            try:
                order = self.orders.get(timeout=PULSE if self.heard else 0.01)
            except Empty:
                self._try("is_ready", SHORT, number="", seconds=0.0)
                continue
            reply = self._exchange(order)
            with self.lock:
                self.replies[order.number] = reply
            self.arrived.set()

    def _exchange(self, order: Order) -> Content | Failure:
        left = order.end - time.monotonic()
        brought = self._try("put", left, number=order.number, kind=order.kind, **order.packed, seconds=left)
        if isinstance(brought, Failure):
            return brought
        while (left := order.end - time.monotonic()) > 0 and not self.closed.is_set():
            ready = self._try("is_ready", SHORT, number=order.number, seconds=min(PATIENCE, left))
            if ready is True:
                return self._fetch(order, left)
            if not self.is_there():
                return Failure(LOST)
            if isinstance(ready, Failure):
                self.closed.wait(PAUSE)
        return Failure(f"{LATE} in time")

    def _fetch(self, order: Order, left: float) -> Content | Failure:
        reply = self._try("take", max(left, SHORT), number=order.number)
        try:
            return reply if isinstance(reply, Failure) else unpack(reply)
        except WireError as error:
            return Failure(str(error))

    def _try(self, method: str, timeout: float, /, **values: object) -> object:
        """What a site's method gives, or a failure in our own words: what NVFlare says may quote the site's data."""
        try:
            found: object = self.call(method, max(timeout, 1.0), **values)
        except Exception as error:  # whatever NVFlare raises; this thread is the only way to the site
            late = isinstance(error, CollabCallError) and error.cause_type == TimeoutError.__name__
            self.limit = SILENT if late else UNREACHABLE
            return Failure(f"{LATE} in time" if late else LOST)
        self.heard, self.limit = time.monotonic(), SILENT
        return found


class NVFlareEngine:
    """See `sites.engine.Engine`; sites have the numbers of their places in the job, and their certificates' names."""

    def __init__(self, calls: Mapping[str, Call], check: Callable[[], None], ending: Event) -> None:
        self.replies: Replies = {}
        self.lock, self.closed, self.check, self.ending = Lock(), Event(), check, ending
        self.arrived = Event()
        shared = self.replies, self.lock, self.closed, self.arrived
        self.lines = [Line(name, call, *shared) for name, call in calls.items()]
        self.numbers = count(1)
        self.round: int | None = None  # of the last message of a round
        for line in self.lines:
            Thread(target=line.serve, daemon=True, name=f"fedpca-{line.name}").start()

    def versions(self) -> Mapping[str, str]:
        return {"nvflare": version("nvflare")}

    def nodes(self) -> Mapping[NodeId, str]:
        """The sites that answer; raises where the job was aborted, or ends before the first round."""
        self.check()
        if self.ending.is_set() and self.round is None:
            raise LegEndedError
        return {number: line.name for number, line in enumerate(self.lines, start=1) if line.is_there()}

    def send(
        self, kind: str, contents: Mapping[NodeId, Content], seconds: float, round: int = 0
    ) -> Mapping[str, NodeId]:
        """Hands each message to its site's line; raises in place of a new round's first one if the job is to end."""
        if kind != HELLO:
            if self.ending.is_set() and round != self.round:
                raise LegEndedError
            self.round = round
        encoded: dict[int, bytes] = {}
        sent: dict[str, NodeId] = {}
        for node, content in contents.items():
            number = str(next(self.numbers))
            self.lines[node - 1].orders.put(Order(number, kind, pack(content, encoded), time.monotonic() + seconds))
            sent[number] = node
        return sent

    def receive(self, messages: Collection[str]) -> Iterator[tuple[str, Content | Failure]]:
        self.check()
        for message in messages:
            with self.lock:
                reply = self.replies.pop(message, None)
            if reply is not None:
                yield message, reply

    def wait(self, seconds: float) -> None:
        """Waits for the next reply, so many seconds at the most."""
        self.arrived.wait(seconds)
        self.arrived.clear()

    def close(self) -> None:
        """Ends the threads after their calls."""
        self.closed.set()


def calls_of(proxies: Sequence[Proxy]) -> dict[str, Call]:
    """A way to call each client of a job, by its name."""

    def caller(proxy: Proxy) -> Call:
        def call(method: str, timeout: float, /, **values: object) -> object:
            return getattr(proxy(timeout=timeout), method)(**values)

        return call

    return {proxy.name: caller(proxy) for proxy in proxies}
