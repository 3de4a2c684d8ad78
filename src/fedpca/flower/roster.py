"""Which sites there are: nodes come and go, and have numbers; sites have names."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedpca.core import ClientId
from fedpca.errors import RunError, WireError
from fedpca.flower.wire import RUN, SiteHead, site_from_records

POLL = 0.5  # seconds between two looks for answers
REFRESH = 3.0  # seconds between two looks for nodes
WHY = {  # Flower's codes of errors, in words without the numbers of nodes
    1: "its app cannot be loaded",
    3: "its answer got lost",
    4: "it did not answer in time",
    5: "it went offline",
    7: "it refused the app",
    8: "its process died",
}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Agreed:
    """What every site of a federation must have in common."""

    classes: tuple[str, ...]  # none where labels are the numbers of the model's outputs
    shape: tuple[int, ...]

    def fault(self, site: SiteHead) -> str | None:
        """Why a site does not fit, or None."""
        if tuple(site.shape) != self.shape:
            return f"its images are {_by(site.shape)}, those of the federation {_by(self.shape)}: set data.image_size"
        unknown = [name for name in site.classes if name not in self.classes]
        return f"the federation has no class {unknown[0]!r}; it has {', '.join(self.classes)}" if unknown else None


def agree(sites: Sequence[SiteHead], classes: tuple[str, ...]) -> Agreed:
    """The given classes or else all that these sites have, and the shape that most of them have."""
    names = classes or tuple(sorted({name for site in sites for name in site.classes}, key=in_order))
    ((shape, _),) = Counter(tuple(site.shape) for site in sites).most_common(1)
    return Agreed(names, shape)


def in_order(name: str) -> tuple[int, int, str]:
    """Sorts names, numbers among them by their value."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def assigned(
    known: Mapping[int, SiteHead], online: Mapping[int, str], agreed: Agreed | None
) -> tuple[dict[ClientId, int], dict[ClientId, str]]:
    """The node of each site, and who is turned away and why; `online` has the name that each node's key stands for.

    That name is proven, a site's own word is not: where there are keys both must agree.
    Of two nodes with one name and one store, the later is the same site after a restart and takes over. With another
    store it is another site: it is turned away until the first has gone.
    """
    nodes: dict[ClientId, int] = {}
    refused: dict[ClientId, str] = {}
    for node, site in known.items():
        if node not in online:
            continue
        holder, proven = nodes.get(site.name), online[node]
        if proven and proven != site.name:
            refused[proven] = (
                f"it calls itself {site.name!r}, but its key is that of {proven!r}: correct its node config"
            )
        elif agreed and (fault := agreed.fault(site)):
            refused[site.name] = fault
        elif holder is not None and known[holder].identity != site.identity:
            refused[f"{site.name} (a second one)"] = (
                f"another site has the name {site.name!r} already: rename one of them"
            )
        else:
            nodes[site.name] = node
    return nodes, refused


@dataclass
class Roster:
    """The sites of a run: asks every new node who it is, without waiting for the answer."""

    grid: Grid
    run: ConfigRecord  # goes with the question
    deadline: float
    tell: Tell
    agreed: Agreed | None = None  # from the first round on
    names: list[ClientId] = field(default_factory=list)  # all that ever took part, in the order of summation
    nodes: dict[ClientId, int] = field(default_factory=dict)  # of those that are there
    refused: dict[ClientId, str] = field(default_factory=dict)
    known: dict[int, SiteHead] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)  # message: node
    looked: float = 0.0

    def refresh(self, at_once: bool = False) -> None:
        """Looks for nodes and for their answers, unless it has just done so."""
        if not at_once and time.monotonic() - self.looked < REFRESH:
            return
        self.looked = time.monotonic()
        online = {node.node_id: node.name for node in self.grid.get_nodes()}
        self.known = {node: site for node, site in self.known.items() if node in online}
        self._ask(sorted(online.keys() - self.known.keys() - set(self.asked.values())))
        self._listen()
        before, earlier = set(self.nodes), set(self.refused)
        self.nodes, self.refused = assigned(self.known, online, self.agreed)
        self.names = sorted({*self.names, *self.nodes}, key=in_order)
        self._announce(before, earlier)

    def heads(self) -> list[SiteHead]:
        """What the sites that are there said about themselves, in their order."""
        return [self.known[self.nodes[name]] for name in self.names if name in self.nodes]

    def gather(self, count: int, least: int, wait: float) -> None:
        """Waits for so many sites; after `wait` seconds the quorum will do, and less than that is an error."""
        end = time.monotonic() + wait
        while len(self.nodes) < count and time.monotonic() < end:
            self.refresh(at_once=True)
            time.sleep(POLL)
        if len(self.nodes) < least:
            there = ", ".join(self.nodes) or "none"
            raise RunError(
                f"{len(self.nodes)} of {count} sites came within {wait:g} s ({there}), the quorum is {least}"
            )
        if len(self.nodes) < count:
            self.tell(f"{len(self.nodes)} of {count} sites came within {wait:g} s; beginning without the others")

    def settle(self, agreed: Agreed, least: int) -> None:
        """Turns away who does not fit what was agreed on; too few that fit are an error."""
        self.agreed, self.names = agreed, []
        self.refresh(at_once=True)
        if len(self.nodes) < least:
            faults = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
            raise RunError(f"{len(self.nodes)} sites fit together, the quorum is {least} ({faults})")

    def _ask(self, nodes: Sequence[int]) -> None:
        if not nodes:
            return
        question = RecordDict({RUN: self.run})
        messages = [Message(question, node, "query.hello", ttl=self.deadline) for node in nodes]
        answers = zip(self.grid.push_messages(messages), nodes, strict=False)
        self.asked |= {message: node for message, node in answers if message}

    def _listen(self) -> None:
        for reply in self.grid.pull_messages(list(self.asked)) if self.asked else ():
            node = self.asked.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            try:
                if reply.has_error():
                    raise WireError(reason(reply))
                self.known[node] = site_from_records(reply.content)
            except WireError as error:
                self.tell(f"a site cannot join: {error}")

    def _announce(self, before: set[ClientId], earlier: set[ClientId]) -> None:
        for name in sorted(self.nodes.keys() - before):
            self.tell(f"{name} is there")
        for name in sorted(before - self.nodes.keys()):
            self.tell(f"{name} is gone")
        for name in sorted(self.refused.keys() - earlier):
            self.tell(f"{name} is turned away: {self.refused[name]}")


def reason(reply: Message) -> str:
    """Why a site gave no answer; a node's own number is not told."""
    code, text = reply.error.code, reply.error.reason or ""
    return WHY.get(code) or f"it failed: {text:.200}"


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
