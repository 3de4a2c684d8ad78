"""MLflow: runs of one MLflow experiment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpca.runs.cell import Cell
from fedpca.runs.trackers.base import LEFT_OUT, Log, Scalars, Status, TrackerKind, name_of, settings_of

ENVIRONMENT = {  # nothing is sent to the makers, and a server that does not answer is found soon
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


@dataclass(frozen=True)
class Mlflow:
    """Runs of one MLflow experiment, on a server or in a database; a SQLite file of our own if none is named."""

    option: str
    uri: str | None = field(repr=False)  # may hold a password
    experiment: str
    own: Path  # folder of that file

    def open_log(self, cell: Cell, known: str | None) -> Log:
        """A run is known by MLflow's id."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        if self.uri is None:
            self.own.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(self.uri or f"sqlite:///{self.own}/mlflow.db")
        if known and _exists(client, known):
            client.update_run(known, status="RUNNING")
            history = client.get_metric_history(known, LEFT_OUT)
            return _MlflowLog(known, max((metric.step for metric in history), default=0), client)
        tags = {"fedpca.folder": str(cell.folder.resolve())}
        run = client.create_run(self._experiment(client), run_name=name_of(cell), tags=tags).info.run_id
        params = [Param(key, str(value)) for key, value in settings_of(cell).items()]
        for start in range(0, len(params), 100):  # as many as MLflow takes at once
            client.log_batch(run, params=params[start : start + 100])
        return _MlflowLog(run, 0, client)

    def _experiment(self, client: Any) -> str:  # noqa: ANN401 (MLflow is not installed everywhere)
        found = client.get_experiment_by_name(self.experiment)
        artifacts = None if self.uri else (self.own / "artifacts").as_uri()
        identity: str = found.experiment_id if found else client.create_experiment(self.experiment, artifacts)
        return identity


@dataclass(frozen=True)
class _MlflowLog:
    id: str
    last_round: int
    client: Any  # MlflowClient

    def add(self, round: int, scalars: Scalars) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.client.log_batch(self.id, [Metric(name, value, now, round) for name, value in scalars.items()])

    def end(self, status: Status) -> None:
        names = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
        self.client.set_terminated(self.id, names[status])


def _exists(client: Any, run: str) -> bool:  # noqa: ANN401
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run).info.lifecycle_stage == "active")
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise


def _open(option: str, where: str, out: Path, experiment: str) -> Mlflow:
    uri = where or os.environ.get("MLFLOW_TRACKING_URI")
    return Mlflow(option, uri, experiment, out.resolve() / "mlruns")


TRACKER = TrackerKind("mlflow", _open, ("sqlalchemy", "alembic", "mlflow.tracking"), ENVIRONMENT)
