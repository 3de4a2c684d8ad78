"""What the sites of a run do, as it travels in messages."""

from __future__ import annotations

from fedpca.auditing.options import WhichRows
from fedpca.core import Method
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.settings.base import Settings, Table
from fedpca.settings.experiment import DataSettings, ModelSettings
from fedpca.sites.one_exchange import in_one_exchange


class Task(Settings):
    """What the sites of a run do: the method, what it is built from, and by which metrics they test the model."""

    method: str
    tables: dict[str, Table]  # settings of the method, complete
    plan: Plan
    accuracy: str  # see `runs.metrics.recorded_metrics`
    data: DataSettings | None = None  # how a site reads its own folder; None where it has functions of its own
    model: ModelSettings | None = None  # the same
    rows: WhichRows = "train"  # that sites train on; an audit judges their test rows too

    def build(self, exchange: str) -> Method:
        """The method, in one exchange a round if asked for."""
        method = compose(self.method, self.plan, self.tables)
        return in_one_exchange(method) if exchange == "one" else method
