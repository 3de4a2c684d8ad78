"""Which sites there are: nodes come and go, and have numbers; sites have names."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from fedpca.core import ClientId, Failure
from fedpca.errors import RunError, WireError
from fedpca.parts.abilities import ability
from fedpca.sites.agreement import Agreement, assign, by_value
from fedpca.sites.engine import Engine, NodeId
from fedpca.sites.messages import HELLO, Refusal, SiteHead, read_refusal, read_site
from fedpca.sites.session import Session

POLL = 0.5  # seconds between two looks for answers
REFRESH = 3.0  # seconds between two looks for nodes

Log = Callable[[str], None]


@dataclass
class Roster:
    """The sites of a run: asks every new node who it is, without waiting for the answer."""

    engine: Engine
    session: Session
    log: Log
    agreement: Agreement | None = None  # from the first round on
    names: list[ClientId] = field(default_factory=list)  # all that ever took part, in the order of summation
    nodes: dict[ClientId, NodeId] = field(default_factory=dict)  # of those that are there
    refusals: dict[ClientId, str] = field(default_factory=dict)
    known: dict[NodeId, SiteHead] = field(default_factory=dict)
    declined: dict[NodeId, Refusal] = field(default_factory=dict)  # whose own policy keeps them out
    questions: dict[str, NodeId] = field(default_factory=dict)  # the messages that wait for an answer
    last_refresh: float = 0.0

    def refresh(self, at_once: bool = False) -> None:
        """Looks for nodes and for their answers, unless it has just done so."""
        if not at_once and time.monotonic() - self.last_refresh < REFRESH:
            return
        self.last_refresh = time.monotonic()
        online = self.engine.nodes()
        self.known = {node: site for node, site in self.known.items() if node in online}
        self.declined = {node: refusal for node, refusal in self.declined.items() if node in online}
        self._ask(online)
        self._listen(online)
        before, earlier = set(self.nodes), set(self.refusals)
        self.nodes, refusals = assign(self.known, online, self.agreement)
        own = {online[node] or refusal.name: refusal.reason for node, refusal in self.declined.items()}
        self.refusals = {**refusals, **{name: why for name, why in own.items() if name not in self.nodes}}
        self.names = sorted({*self.names, *self.nodes}, key=by_value)
        self._announce(before, earlier)

    def pause(self) -> None:
        """Waits a little, or until something has arrived, where the engine can tell."""
        (ability(self.engine, "wait") or time.sleep)(POLL)

    def heads(self) -> list[SiteHead]:
        """What the sites that are there said about themselves, in their order."""
        return [self.known[self.nodes[name]] for name in self.names if name in self.nodes]

    def gather(self) -> None:
        """Waits for as many sites as are to come; after that time the quorum will do, and less is an error."""
        deployment = self.session.deployment
        count, quorum, wait = deployment.sites, deployment.min_answers, deployment.wait
        end = time.monotonic() + wait
        while len(self.nodes) + len(self.declined) < count and time.monotonic() < end:
            self.refresh(at_once=True)
            time.sleep(POLL)
        if len(self.nodes) < quorum:
            there = ", ".join(self.nodes) or "none"
            why = "".join(f"; {name}: {reason}" for name, reason in self.refusals.items())
            raise RunError(
                f"{len(self.nodes)} of {count} sites joined within {wait:g} s ({there}), the quorum is {quorum}{why}"
            )
        if len(self.nodes) < count:
            self.log(f"{len(self.nodes)} of {count} sites joined within {wait:g} s; beginning without the others")

    def wait_for(self, sites: Collection[ClientId]) -> bool:
        """Waits until all of these are there, as long as for sites at the beginning; whether they are."""
        end = time.monotonic() + self.session.deployment.wait
        while not (there := all(site in self.nodes for site in sites)) and time.monotonic() < end:
            time.sleep(POLL)
            self.refresh()
        return there

    def require(self, agreement: Agreement) -> None:
        """Turns away who does not fit what was agreed on; too few that fit are an error."""
        self.agreement, self.names = agreement, []
        self.refresh(at_once=True)
        if len(self.nodes) < (quorum := self.session.deployment.min_answers):
            reasons = "; ".join(f"{name}: {why}" for name, why in self.refusals.items())
            raise RunError(f"{len(self.nodes)} sites fit together, the quorum is {quorum} ({reasons})")

    def _ask(self, online: Mapping[NodeId, str]) -> None:
        new = sorted(online.keys() - self.known.keys() - self.declined.keys() - set(self.questions.values()))
        if new:
            question = self.session.question(sums=self.agreement is None)  # later nobody has use for them
            self.questions |= self.engine.send(HELLO, dict.fromkeys(new, question), self.session.deployment.deadline)

    def _listen(self, online: Mapping[NodeId, str]) -> None:
        for message, answer in self.engine.receive(list(self.questions)) if self.questions else ():
            node = self.questions.pop(message)
            try:
                if isinstance(answer, Failure):
                    raise WireError(answer.reason)
                if refusal := read_refusal(answer):
                    self.declined[node] = refusal
                else:
                    self.known[node] = read_site(answer)
            except WireError as error:
                self.log(f"{online.get(node) or 'a site'} cannot join: {error}")

    def _announce(self, before: set[ClientId], earlier: set[ClientId]) -> None:
        for name in sorted(self.nodes.keys() - before):
            self.log(f"{name} is there")
        for name in sorted(before - self.nodes.keys()):
            self.log(f"{name} is gone")
        for name in sorted(self.refusals.keys() - earlier):
            self.log(f"{name} is turned away: {self.refusals[name]}")
