"""Rounds shown in TensorBoard, MLflow or Weights & Biases while they are played; the run folder stays the record.

What is logged is read from the run's own record: the seconds of a round, and the rounds before a resumed run, are only
there.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol

from fedpca.atomic import write_json
from fedpca.errors import UserError, nearest
from fedpca.runs.cell import Cell, Watch
from fedpca.runs.folder import ROUNDS, RoundLine, parse_rounds
from fedpca.settings.toml import flatten

Figures = dict[str, float]
Status = Literal["finished", "stopped", "failed"]

MODULES = {  # what each tracker imports; all of it comes with the extra of the same name
    "tensorboard": ("tensorboard.summary.writer.record_writer",),
    "mlflow": ("sqlalchemy", "alembic", "mlflow.tracking"),
    "wandb": ("wandb.sdk",),
}
ENVIRONMENT = {  # unless the user's own says otherwise: nothing is told to the makers, a dead server is found dead soon
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_MACHINE_INFO": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
    "WANDB_INIT_TIMEOUT": "30",
    "WANDB_FINISH_TIMEOUT": "60",
    "WANDB_FINISH_TIMEOUT_RAISES": "true",
}
IDS = "trackers.json"  # in the run folder: what each tracker calls the run
LEFT_OUT = "clients/left_out"  # known in every round


class Log(Protocol):
    """What one tracker holds of one run."""

    @property
    def id(self) -> str:
        """By which a resumed run finds it again."""

    @property
    def last(self) -> int:
        """The latest round that it held when it was opened."""

    def add(self, round: int, figures: Figures) -> None:
        """Adds a round, wholly or not at all."""

    def end(self, status: Status) -> None:
        """Closes it."""


class Tracker(Protocol):
    """One `--log-to`."""

    @property
    def wanted(self) -> str:
        """As it was asked for, without a password."""

    def begin(self, cell: Cell, known: str | None) -> Log:
        """The log of that id, if it is still there, else a new one."""


def choose(wanted: Sequence[str], out: Path, experiment: str) -> list[Tracker]:
    """The trackers that `--log-to NAME[=WHERE]` asks for; refuses what is unknown or not installed."""
    return [_chosen(text, out, experiment) for text in dict.fromkeys(wanted)]


@contextmanager
def tracking(trackers: Sequence[Tracker], cells: Sequence[Cell], tell: Callable[[str], None]) -> Iterator[Watch]:
    """Logs every round that it is told of; whatever ends this closes the logs and says in them how it ended.

    The first run's logs are opened at once: what does not start stops the experiment before it trains. What fails later
    is told once per tracker, and the training goes on.
    """
    book = _Logbook(trackers, tell)
    status: Status = "failed"
    try:
        if cells:
            book.start(cells[0])
        yield book.on_round
        status = "finished"
    except KeyboardInterrupt:
        status = "stopped"
        raise
    finally:
        book.close(status)


def figures(line: RoundLine) -> Figures:
    """A round's numbers under the names that all trackers show; what is not known is not there."""
    tested, identification, weights = line["groups"] or {}, line["identification"] or {}, line["weights"] or {}
    values: dict[str, float | None] = {LEFT_OUT: len(line["left_out"]), "seconds": line["seconds"]}
    for metric in ("acc", "auc"):
        if by_group := {group: scores[metric] for group, scores in tested.items() if scores[metric] is not None}:
            values |= {f"{metric}/{group}": value for group, value in by_group.items()}
            values |= {f"{metric}/worst": min(by_group.values()), f"{metric}/average": fmean(by_group.values())}
    values |= {f"weight/{group}": weights.get(group) for group in ("rare", "mislabeled")}
    values |= {f"identification/{name}": identification.get(name) for name in ("precision", "recall", "f1")}
    if groups := line["clients"]["group"]:
        values["clients/judged_mislabeled"] = groups.count("mislabeled")
    return {name: float(value) for name, value in values.items() if value is not None}


def settings_of(cell: Cell) -> dict[str, str | float | bool]:
    """The run's settings under dotted names, for trackers that take no lists and no + in a name."""
    table = cell.settings.model_dump(mode="json", exclude_none=True, exclude={"methods", "seeds"})
    flat = {"method": cell.method, "seed": cell.seed, **flatten(table)}
    return {
        key.replace("+", "_plus_"): value if isinstance(value, str | int | float) else json.dumps(value)
        for key, value in flat.items()
    }


def name_of(cell: Cell) -> str:
    """method/seed-N, as the run folder ends, below the setting where there are several."""
    return "/".join(filter(None, (cell.setting, *cell.folder.parts[-2:])))


# What --log-to names


def _chosen(text: str, out: Path, experiment: str) -> Tracker:
    name, equals, where = text.partition("=")
    if name not in MODULES:
        close = nearest(name, MODULES).partition(";")[0]
        raise UserError(f"--log-to: there is no tracker {name!r}{close}; there are {', '.join(MODULES)}")
    if equals and not where:
        raise UserError(f"--log-to {text}: nothing follows the =; say where, or leave the = out")
    _import(name)
    wanted = _without_password(text)
    if name == "tensorboard":
        return TensorBoard(wanted, Path(where).expanduser() if where else out / "tensorboard")
    if name == "mlflow":
        uri = where or os.environ.get("MLFLOW_TRACKING_URI")
        return Mlflow(wanted, uri, experiment, out.resolve() / "mlruns")
    return Wandb(wanted, where or os.environ.get("WANDB_PROJECT") or experiment, out)


def _import(name: str) -> None:
    for variable in (variable for variable in ENVIRONMENT if variable.startswith(name.upper())):
        os.environ.setdefault(variable, ENVIRONMENT[variable])
    try:
        for module in MODULES[name]:
            import_module(module)
    except ImportError as error:
        remedy = f"pip install 'fedpca[{name}]'"
        raise UserError(f"--log-to {name} needs a package that is not installed ({error}): {remedy}") from None


def _without_password(text: str) -> str:
    return re.sub(r"//[^/\s]*@", "//…@", text)


# Every run's logs


@dataclass
class _Feed:
    """One tracker's log of one run, and how many bytes of the run's record it has been given."""

    folder: Path
    log: Log
    read: int = 0

    def catch_up(self) -> None:
        """Logs what the record has gained, but for rounds that were logged before the run was resumed."""
        with (self.folder / ROUNDS).open("rb") as file:
            file.seek(self.read)
            lines, size = parse_rounds(file.read())
        for line in lines:
            if line["round"] > self.log.last:
                self.log.add(line["round"], figures(line))
        self.read += size


@dataclass
class _Logbook:
    """The open logs of all runs, which may go on side by side."""

    trackers: Sequence[Tracker]
    tell: Callable[[str], None]
    feeds: dict[Path, dict[Tracker, _Feed]] = field(default_factory=dict)  # by run folder
    told: set[Tracker] = field(default_factory=set)

    def start(self, cell: Cell) -> None:
        """Opens the run's logs; one that does not open is the user's to mend."""
        for tracker in self.trackers:
            try:
                self._open(cell, tracker)
            except Exception as error:
                raise UserError(
                    f"--log-to {tracker.wanted} does not start: {_reason(error)}\n"
                    "mend that, or run without it: the run folder records every round anyway"
                ) from None

    def on_round(self, cell: Cell, line: RoundLine) -> None:
        """Brings the run's logs up to its record, and closes them after the last round."""
        if cell.folder not in self.feeds:
            self.feeds[cell.folder] = {}
            for tracker in self.trackers:
                with self._forgiving(cell.folder, tracker):
                    self._open(cell, tracker)
        for tracker, feed in list(self.feeds[cell.folder].items()):
            with self._forgiving(cell.folder, tracker):
                feed.catch_up()
        if line["round"] == cell.settings.rounds:
            self._end(cell.folder, "finished")

    def close(self, status: Status) -> None:
        """Closes what is open."""
        for folder in self.feeds:
            self._end(folder, status)

    def _open(self, cell: Cell, tracker: Tracker) -> None:
        path = cell.folder / IDS
        ids = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        log = tracker.begin(cell, ids.get(tracker.wanted))
        self.feeds.setdefault(cell.folder, {})[tracker] = _Feed(cell.folder, log)
        write_json(path, {**ids, tracker.wanted: log.id})

    def _end(self, folder: Path, status: Status) -> None:
        for tracker, feed in list(self.feeds[folder].items()):
            with self._forgiving(folder, tracker):
                del self.feeds[folder][tracker]
                feed.log.end(status)

    @contextmanager
    def _forgiving(self, folder: Path, tracker: Tracker) -> Iterator[None]:
        """Gives up the run's log where it fails, says so if it is the tracker's first time, and goes on."""
        try:
            yield
        except Exception as error:
            if tracker not in self.told:
                self.told.add(tracker)
                self.tell(
                    f"--log-to {tracker.wanted} fails: {_reason(error)}\n"
                    "the training goes on, and the run folders hold every round; the next run is tried again"
                )
            if feed := self.feeds[folder].pop(tracker, None):
                with suppress(Exception):
                    feed.log.end("failed")


def _reason(error: Exception) -> str:
    return _without_password(f"{error}" or type(error).__name__)


# TensorBoard


@dataclass(frozen=True)
class TensorBoard:
    """Event files below a folder, a folder for each run."""

    wanted: str
    folder: Path

    def begin(self, cell: Cell, known: str | None) -> Log:
        """A run is known by its folder; a name that is taken gets a number."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        if known and (self.folder / known).is_dir():
            return _Events(known, _last_step(self.folder / known), _event_file(self.folder / known))
        names = (name_of(cell) + (f"-{number}" if number > 1 else "") for number in count(1))
        name = next(name for name in names if _made(self.folder / name))
        log = _Events(name, 0, _event_file(self.folder / name))
        log.write(summary=hparams_pb(settings_of(cell)))
        return log


@dataclass(frozen=True)
class _Events:
    id: str
    last: int
    file: Any  # tensorboard's RecordWriter: at once, where its EventFileWriter would write and fail in a thread

    def add(self, round: int, figures: Figures) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self.write(step=round, summary=Summary(value=values))

    def write(self, **content: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self.file.write(Event(wall_time=time.time(), **content).SerializeToString())
        self.file.flush()

    def end(self, _: Status) -> None:
        self.file.close()


def _event_file(folder: Path) -> Any:  # noqa: ANN401 (TensorBoard is not installed everywhere)
    """A file that readers take after those that are there."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    now = time.time()
    file = RecordWriter((folder / f"events.out.tfevents.{now:.6f}.{os.getpid()}").open("xb"))
    file.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
    return file


def _made(folder: Path) -> bool:
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        return True
    return False


def _last_step(folder: Path) -> int:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = folder.glob("events.out.tfevents.*")
    return max((event.step for file in files for event in EventFileLoader(str(file)).Load()), default=0)


# MLflow


@dataclass(frozen=True)
class Mlflow:
    """Runs of one MLflow experiment, on a server or in a database; a SQLite file of our own if none is named."""

    wanted: str
    uri: str | None = field(repr=False)  # may hold a password
    experiment: str
    own: Path  # folder of that file

    def begin(self, cell: Cell, known: str | None) -> Log:
        """A run is known by MLflow's id."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        if self.uri is None:
            self.own.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(self.uri or f"sqlite:///{self.own}/mlflow.db")
        if known and _is_there(client, known):
            client.update_run(known, status="RUNNING")
            history = client.get_metric_history(known, LEFT_OUT)
            return _MlflowRun(known, max((metric.step for metric in history), default=0), client)
        tags = {"fedpca.folder": str(cell.folder.resolve())}
        run = client.create_run(self._experiment(client), run_name=name_of(cell), tags=tags).info.run_id
        params = [Param(key, str(value)) for key, value in settings_of(cell).items()]
        for start in range(0, len(params), 100):  # as many as MLflow takes at once
            client.log_batch(run, params=params[start : start + 100])
        return _MlflowRun(run, 0, client)

    def _experiment(self, client: Any) -> str:  # noqa: ANN401 (MLflow is not installed everywhere)
        found = client.get_experiment_by_name(self.experiment)
        artifacts = None if self.uri else (self.own / "artifacts").as_uri()
        identity: str = found.experiment_id if found else client.create_experiment(self.experiment, artifacts)
        return identity


@dataclass(frozen=True)
class _MlflowRun:
    id: str
    last: int
    client: Any  # MlflowClient

    def add(self, round: int, figures: Figures) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.client.log_batch(self.id, [Metric(name, value, now, round) for name, value in figures.items()])

    def end(self, status: Status) -> None:
        names = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
        self.client.set_terminated(self.id, names[status])


def _is_there(client: Any, run: str) -> bool:  # noqa: ANN401
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run).info.lifecycle_stage == "active")
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise


# Weights & Biases


@dataclass(frozen=True)
class Wandb:
    """Runs of one project; whether they are sent at once, later or never is up to wandb's own environment."""

    wanted: str
    project: str  # or entity/project
    folder: Path

    def begin(self, cell: Cell, known: str | None) -> Log:
        """A run is known by its id; offline nothing can be looked up, and a resumed run is written again as a whole."""
        import wandb

        entity, _, project = self.project.rpartition("/")
        run = wandb.init(
            entity=entity or None,
            project=project,
            name=name_of(cell),
            id=known,
            resume="allow" if known else None,
            config=settings_of(cell),
            dir=os.environ.get("WANDB_DIR", self.folder),
            reinit="create_new",
        )
        return _WandbRun(run.id, run.step - 1, run)


@dataclass(frozen=True)
class _WandbRun:
    id: str
    last: int
    run: Any  # wandb's Run

    def add(self, round: int, figures: Figures) -> None:
        self.run.log(figures, step=round)

    def end(self, status: Status) -> None:
        self.run.finish(exit_code={"finished": 0, "stopped": 255, "failed": 1}[status])
