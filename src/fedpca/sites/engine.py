"""What a run needs of an engine, which carries messages between the server and nodes: processes at the sites."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from fedpca.core import Failure
from fedpca.sites.messages import Content

NodeId = int  # an engine's own number of a node; a site that restarts is another node


class Engine(Protocol):
    """Messages go out and answers come in; nothing here waits.

    An engine whose answers arrive by themselves may have a fifth function, `wait(seconds)`, which ends when one does.
    """

    def versions(self) -> Mapping[str, str]:
        """What carries the messages, by the name of its package, for the record."""

    def nodes(self) -> Mapping[NodeId, str]:
        """The nodes that are there, each with the site's name that its key stands for; "" without keys."""

    def send(
        self, kind: str, contents: Mapping[NodeId, Content], seconds: float, round: int = 0
    ) -> Mapping[str, NodeId]:
        """Sends a content to each node, to be answered within so many seconds; the messages that are under way."""

    def receive(self, messages: Collection[str]) -> Iterable[tuple[str, Content | Failure]]:
        """What has arrived of the answers to these messages; of an answer that cannot be used, why."""
