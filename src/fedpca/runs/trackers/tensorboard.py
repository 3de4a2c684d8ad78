"""TensorBoard: event files below a folder."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from fedpca.runs.cell import Cell
from fedpca.runs.trackers.base import Log, Scalars, Status, TrackerKind, name_of, settings_of


@dataclass(frozen=True)
class TensorBoard:
    """Event files below a folder, a folder for each run."""

    option: str
    folder: Path

    def open_log(self, cell: Cell, known: str | None) -> Log:
        """A run is known by its folder; a name that is taken gets a number."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        if known and (self.folder / known).is_dir():
            return _TensorBoardLog(known, _last_step(self.folder / known), _event_file(self.folder / known))
        names = (name_of(cell) + (f"-{number}" if number > 1 else "") for number in count(1))
        name = next(name for name in names if _create(self.folder / name))
        log = _TensorBoardLog(name, 0, _event_file(self.folder / name))
        log.write(summary=hparams_pb(settings_of(cell)))
        return log


@dataclass(frozen=True)
class _TensorBoardLog:
    id: str
    last_round: int
    file: Any  # tensorboard's RecordWriter: at once, where its EventFileWriter would write and fail in a thread

    def add(self, round: int, scalars: Scalars) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
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


def _create(folder: Path) -> bool:
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        return True
    return False


def _last_step(folder: Path) -> int:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = folder.glob("events.out.tfevents.*")
    return max((event.step for file in files for event in EventFileLoader(str(file)).Load()), default=0)


def _open(option: str, where: str, out: Path, _: str) -> TensorBoard:
    return TensorBoard(option, Path(where).expanduser() if where else out / "tensorboard")


TRACKER = TrackerKind("tensorboard", _open, ("tensorboard.summary.writer.record_writer",))
