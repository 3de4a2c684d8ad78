"""An engine within a process: nodes answer at once or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from fedpca.core import Failure
from fedpca.sites.messages import Content


class Direct:
    """Nodes of this process, by number, each a function from a message's kind and content to its answer."""

    def __init__(self, nodes: dict[int, Callable[[str, Content], Content | Failure]]) -> None:
        self.answers, self.names, self.silent, self.sent = nodes, {}, set(), []
        self.waiting: dict[str, Content | Failure] = {}

    def versions(self) -> Mapping[str, str]:
        return {"direct": "1"}

    def nodes(self) -> Mapping[int, str]:
        return {node: self.names.get(node, "") for node in self.answers}

    def send(self, kind: str, contents: Mapping[int, Content], seconds: float, round: int = 0) -> dict[str, int]:
        messages = {f"{len(self.sent) + number}": node for number, node in enumerate(contents)}
        for message, node in messages.items():
            self.sent.append((node, kind))
            if node not in self.silent:
                self.waiting[message] = self.answers[node](kind, contents[node])
        return messages

    def receive(self, messages: Collection[str]) -> Iterator[tuple[str, Content | Failure]]:
        for message in messages:
            if message in self.waiting:
                yield message, self.waiting.pop(message)
