"""Flower's grid as an engine: its messages, nodes and codes of errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedpca.core import Failure
from fedpca.errors import WireError
from fedpca.flower.wire import from_records, to_records
from fedpca.sites.audit_messages import LIST, SUMMARY
from fedpca.sites.clients import DIED, LATE, LOST, OFFLINE
from fedpca.sites.engine import NodeId
from fedpca.sites.messages import EVALUATE, HELLO, REPORT, TRAIN, Content

KINDS = {  # Flower's names
    HELLO: "query.hello",
    REPORT: "query.report",
    TRAIN: "train",
    EVALUATE: "evaluate",
    SUMMARY: "query.summary",
    LIST: "query.list",
}
REASONS = {  # Flower's codes of errors, in words without the numbers of nodes
    1: "its app cannot be loaded",
    3: LOST,
    4: f"{LATE} in time",
    5: OFFLINE,
    7: "it refused the app",
    8: DIED,
}


@dataclass(frozen=True)
class FlowerEngine:
    """See `sites.engine.Engine`."""

    grid: Grid

    def versions(self) -> Mapping[str, str]:
        return {"flwr": version("flwr")}

    def nodes(self) -> Mapping[NodeId, str]:
        """Flower's numbers of the nodes that are there, and the names under which their keys were registered."""
        return {node.node_id: node.name for node in self.grid.get_nodes()}

    def send(
        self, kind: str, contents: Mapping[NodeId, Content], seconds: float, round: int = 0
    ) -> Mapping[str, NodeId]:
        """Pushes a message to each node; Flower gives no number to one that it could not take."""
        encoded: dict[int, ArrayRecord] = {}
        messages = [
            Message(to_records(content, encoded), node, KINDS[kind], ttl=seconds, group_id=str(round))
            for node, content in contents.items()
        ]
        numbers = zip(self.grid.push_messages(messages), contents, strict=False)
        return {number: node for number, node in numbers if number}

    def receive(self, messages: Collection[str]) -> Iterator[tuple[str, Content | Failure]]:
        for reply in self.grid.pull_messages(list(messages)):
            if (number := reply.metadata.reply_to_message_id) in messages:
                yield number, _content(reply)


def _content(reply: Message) -> Content | Failure:
    if reply.has_error():
        code, text = reply.error.code, reply.error.reason or ""
        return Failure(REASONS.get(code) or f"it failed: {text:.200}")
    try:
        return from_records(reply.content)
    except WireError as error:
        return Failure(str(error))
