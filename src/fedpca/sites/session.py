"""One run with real sites."""

from __future__ import annotations

from dataclasses import dataclass

from fedpca.sites.messages import Content, write_run
from fedpca.sites.settings import Deployment
from fedpca.sites.task import Task


@dataclass(frozen=True)
class Session:
    """What all messages of a run have in common, and how long and for how many sites it waits."""

    run: str  # its id, by which sites find their memory again
    task: Task
    deployment: Deployment

    def content(self, classes: tuple[str, ...], evaluate: bool = False) -> Content:
        """What a message says about the run."""
        own = self.deployment
        return write_run(self.run, self.task, classes, evaluate, own.exchange, own.privacy)
