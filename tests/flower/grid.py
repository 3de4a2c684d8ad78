"""Flower's grid within a process: messages travel as bytes, apps answer at once or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity  # what Flower sets before it calls an app

TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
App = Callable[[Message, Context], Message]


def travelled(thing):
    """What a Flower object is once it has been bytes."""
    children = {key: travelled(child) for key, child in (thing.children or {}).items()}
    return type(thing).inflate(thing.deflate(), children)


class Loopback(Grid):
    """Nodes of this process, by number: an app and its node config each."""

    def __init__(self, nodes: dict[int, tuple[App | ClientApp, dict[str, object]]]) -> None:
        self.nodes, self.replies, self.silent, self.sent = nodes, {}, set(), []
        self.before: Callable[[Message], None] = lambda message: None  # looks at every message to a node

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            number = uuid4().hex
            numbers.append(number)
            came = travelled(message)
            came.metadata.__dict__["_message_id"] = number
            self.sent.append((message.metadata.dst_node_id, message.metadata.message_type))
            self.before(came)
            node = message.metadata.dst_node_id
            if node in self.nodes and node not in self.silent:
                app, config = self.nodes[node]
                reply = app(came, Context(1, node, dict(config), RecordDict(), {}))
                self.replies[number] = travelled(reply)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(number) for number in message_ids if number in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def set_run(self, run) -> None:
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError
