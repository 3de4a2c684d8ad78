"""Clients at real sites: each exchange is a message to every ordered site, and the answers that come in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from fedpca.core import NOBODY, ClientId, Failure, Order, Params, Report, Update
from fedpca.errors import WireError
from fedpca.models.flat import Layout
from fedpca.parts.abilities import ability
from fedpca.runs.metrics import recorded_metrics
from fedpca.sites import messages
from fedpca.sites.agreement import Agreement
from fedpca.sites.engine import NodeId
from fedpca.sites.messages import EVALUATE, REPORT, TRAIN, Content
from fedpca.sites.roster import POLL, Roster

ABSENT, RESTARTED, OFFLINE = "it is not there", "it restarted", "it went offline"
LATE, DIED, LOST = "it did not answer", "its process died", "its answer got lost"
GONE = (ABSENT, RESTARTED, OFFLINE, LATE, DIED, LOST)  # why a site that is well may have said nothing
Answer = TypeVar("Answer")
Metrics = dict[str, float]


@dataclass
class Exchange:
    """What one exchange took."""

    kind: str
    seconds: float = 0.0
    sent: int = 0  # bytes, to all sites
    received: int = 0
    answers: int = 0


@dataclass
class SiteClients:
    """The sites of a roster as clients of the round loop."""

    roster: Roster
    agreement: Agreement
    layout: Layout
    due: Callable[[int], bool]  # whether the model after a round is to be tested
    names: list[ClientId] = field(default_factory=list)  # of this round
    cohort: tuple[ClientId, ...] = ()  # asked in the first exchange of the last round
    evaluations: dict[ClientId, Metrics] = field(default_factory=dict)  # of the model that it began with
    exchanges: list[Exchange] = field(default_factory=list)  # of it
    only: Collection[ClientId] | None = None  # who may take part; None: everybody

    def __post_init__(self) -> None:
        session = self.roster.session
        self.method = session.task.build(session.deployment.exchange)
        self.metrics = recorded_metrics(session.task.accuracy)
        self.deadline = session.deployment.deadline
        self.renew()

    @property
    def ids(self) -> Sequence[ClientId]:
        """Every site that ever took part, whether it is there or not; the same throughout a round."""
        return self.names

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        """How many images or rows each site that is there said it has, when it joined."""
        return {head.name: head.train for head in self.roster.heads()}

    def renew(self) -> None:
        """Begins the next round: whoever joined meanwhile takes part in it."""
        self.roster.refresh(at_once=True)
        self.names = [name for name in self.roster.names if self.only is None or name in self.only]
        self.exchanges = []

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report | Failure]]:
        """Each ordered site's report."""
        return self._exchange(REPORT, self._orders(params, orders), messages.read_report, _round(orders), first=True)

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update | Failure]]:
        """Each ordered site's update; those that are dropped are not asked, since they would send nothing."""
        recipe = next((self.method.recipe(order.round) for order in orders.values()), None)
        first = recipe is not None and recipe.report is None
        idle = ability(recipe.select, "idle") if recipe and not first else None  # the first exchange also evaluates
        asked = {site: order for site, order in orders.items() if not (idle and idle(order))}

        def read(content: Content) -> Update:
            return messages.read_update(content, self.layout)

        answers = self._exchange(TRAIN, self._orders(params, asked), read, _round(asked), first)
        for site in orders:
            yield next(answers) if site in asked else (site, Update(None, 0))
        yield from answers  # nobody any more: it counts what the exchange took

    def evaluate(self, params: Params, rounds: int) -> None:
        """Asks every site how the model after the last round does there."""
        orders = {site: Order(rounds, rounds, NOBODY) for site in self.ids}
        written = self._orders(params, orders)
        for _ in self._exchange(EVALUATE, written, lambda content: None, rounds, first=True):
            pass

    def ask(
        self, kind: str, written: Mapping[ClientId, Content], read: Callable[[Content], Answer], seconds: float
    ) -> dict[ClientId, Answer | Failure]:
        """Each site's answer to a message of its own; who is not there is waited for, so many seconds at the most."""
        end, answers = time.monotonic() + seconds, dict[ClientId, Answer | Failure]()
        asked = written
        while asked:
            answers |= dict(self._exchange(kind, asked, read, 0, first=False))
            gone = [site for site in asked if _is_gone(answers[site])]
            asked = {site: written[site] for site in gone} if time.monotonic() < end else {}
            if asked:
                time.sleep(POLL)
        return answers

    def _orders(self, params: Params, orders: Mapping[ClientId, Order]) -> dict[ClientId, Content]:
        return messages.write_orders(params, orders, self.layout)

    def _exchange(
        self,
        kind: str,
        orders: Mapping[ClientId, Content],
        read: Callable[[Content], Answer],
        number: int,
        first: bool,
    ) -> Iterator[tuple[ClientId, Answer | Failure]]:
        """The ordered sites' answers, in their order; `number` is the round, whose first exchange also evaluates."""
        started, stats, nodes = time.monotonic(), Exchange(kind), dict(self.roster.nodes)
        waiting = self._send(kind, orders, number, first, stats)
        if first:
            self.evaluations, self.cohort = {}, tuple(orders)
        replies: dict[ClientId, Content | Failure] = {}
        end = time.monotonic() + self.deadline
        self._receive(waiting, replies)
        for site in orders:
            while site in waiting.values() and time.monotonic() < end and self._stays(site, nodes):
                self._receive(waiting, replies)
            reply = replies.pop(site, None)
            yield site, self._silence(site, nodes) if reply is None else self._read(site, reply, read, stats)
        stats.seconds = round(time.monotonic() - started, 3)
        self.exchanges.append(stats)

    def _send(
        self, kind: str, orders: Mapping[ClientId, Content], number: int, first: bool, stats: Exchange
    ) -> dict[str, ClientId]:
        """Which message went to which site; to those that are not there none does."""
        there = {site: order for site, order in orders.items() if site in self.roster.nodes}
        if not there:
            return {}
        evaluate = first and self.due(number if kind == EVALUATE else number - 1)
        run = self.roster.session.content(self.agreement, evaluate)
        sites = {self.roster.nodes[site]: site for site in there}
        contents = {node: there[site] | run for node, site in sites.items()}
        stats.sent += sum(content.size for content in contents.values())
        sent = self.roster.engine.send(kind, contents, self.deadline, number)
        return {message: sites[node] for message, node in sent.items()}

    def _receive(self, waiting: dict[str, ClientId], replies: dict[ClientId, Content | Failure]) -> None:
        """Takes what has arrived; if nothing has, waits a little."""
        if not waiting:
            return
        self.roster.refresh()
        arrived = list(self.roster.engine.receive(list(waiting)))
        for message, reply in arrived:
            replies[waiting.pop(message)] = reply
        if not arrived:
            self.roster.pause()

    def _stays(self, site: ClientId, nodes: Mapping[ClientId, NodeId]) -> bool:
        """Whether a site is still the node that it was when it was asked."""
        return site in nodes and self.roster.nodes.get(site) == nodes[site]

    def _silence(self, site: ClientId, nodes: Mapping[ClientId, NodeId]) -> Failure:
        """Why a site gave no answer."""
        if site not in nodes:
            return Failure(ABSENT)
        if not self._stays(site, nodes):
            return Failure(RESTARTED if site in self.roster.nodes else OFFLINE)
        return Failure(f"{LATE} within {self.deadline:g} s")

    def _read(
        self, site: ClientId, reply: Content | Failure, read: Callable[[Content], Answer], stats: Exchange
    ) -> Answer | Failure:
        """What a site answered, or why that cannot be used."""
        if isinstance(reply, Failure):
            return reply
        try:
            stats.received += reply.size
            stats.answers += 1
            if refusal := messages.read_refusal(reply):
                return Failure(refusal.reason)
            if (evaluation := messages.read_evaluation(reply, self.metrics)) is not None:
                self.evaluations[site] = evaluation
            return read(reply)
        except WireError as error:
            return Failure(str(error))


def _round(orders: Mapping[ClientId, Order]) -> int:
    return next((order.round for order in orders.values()), 0)


def _is_gone(answer: object) -> bool:
    """Whether a site gave no answer because it was not there, so that it may when it is back."""
    return isinstance(answer, Failure) and answer.reason.startswith(GONE)


def costs(exchanges: Sequence[Exchange]) -> list[dict[str, object]]:
    """Exchanges as they are recorded."""
    return [asdict(exchange) for exchange in exchanges]
