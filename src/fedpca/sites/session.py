"""One run with real sites."""

from __future__ import annotations

from dataclasses import dataclass

from fedpca.sites.agreement import Agreement
from fedpca.sites.encoding import write_encoding
from fedpca.sites.messages import Content, write_run
from fedpca.sites.settings import Deployment
from fedpca.sites.task import Task


@dataclass(frozen=True)
class Session:
    """What all messages of a run have in common, and how long and for how many sites it waits."""

    run: str  # its id, by which sites find their memory again
    task: Task
    deployment: Deployment

    def question(self, sums: bool) -> Content:
        """What the question who a site is says about the run: nothing that was agreed on.

        Who has other classes or columns is turned away by name and can say so. `sums` asks for those of a table.
        """
        return self._content(Agreement((), ()), evaluate=False, sums=sums)

    def content(self, agreement: Agreement, evaluate: bool) -> Content:
        """What an order says about the run."""
        return self._content(agreement, evaluate, sums=False)

    def _content(self, agreed: Agreement, evaluate: bool, sums: bool) -> Content:
        own = self.deployment
        return write_run(
            self.run,
            self.task,
            own.exchange,
            own.privacy,
            classes=agreed.classes,
            table=write_encoding(agreed.table),
            evaluate=evaluate,
            sums=sums,
        )
