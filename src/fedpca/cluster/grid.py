"""The runs of an experiment as tasks of a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from fedpca.cluster.connect import Link
from fedpca.cluster.files import read_files, write_files
from fedpca.runs.cell import Cell, Watch, is_done
from fedpca.runs.folder import locked_run, recorded_rounds
from fedpca.runs.follow import Follower
from fedpca.runs.jobs import naming, together
from fedpca.settings.toml import write_table

if TYPE_CHECKING:
    from distributed import Future

    from fedpca.cluster.prepared import RunSpec

STREAM_SECONDS = 30.0  # after which a worker without the disk sends the run so far
LOOK_SECONDS = 0.5  # between looks at the records of runs
DISK_SECONDS = 90.0  # until a shared disk shows here what was written there


@dataclass
class Run:
    """A run that is being played."""

    cell: Cell
    spec: RunSpec
    record: Follower
    future: Future | None = None


@dataclass(frozen=True)
class Grid:
    """Runs on a cluster."""

    link: Link
    workers: int | None  # clients of a run at the same time, if somebody says so
    data_dir: Path | None
    seconds: float = STREAM_SECONDS

    def look(self, cells: Sequence[Cell]) -> list[str]:
        """What there is to say of each setting; workers read the data, so that errors in them are found first."""
        first_cells = {cell.setting: cell for cell in reversed(cells)}
        looks = {name: self.link.submit("look", self._spec(cell)) for name, cell in first_cells.items()}
        words = {}
        for name, future in reversed(looks.items()):
            with naming(name):
                words[name] = self.link.value(future, "the data")
        return [self.link.words, *together(words)]

    def play(self, cells: Sequence[Cell], watch: Watch) -> None:
        """Plays the runs to their end; whatever ends this, no task goes on for longer than its round."""
        done: SimpleQueue[Future] = SimpleQueue()
        runs = dict[str, Run]()  # that are not finished, by the key of their task
        try:
            for cell in cells:
                self._submit(
                    Run(cell, self._spec(cell), Follower(cell.folder, recorded_rounds(cell.folder))), runs, done
                )
            while runs:
                for future in _finished(done):
                    run = runs.pop(future.key)
                    if not self._take(run, future):
                        self._submit(run, runs, done, again=True)
                    else:
                        _await_disk(run.cell)
                    _show(run, watch)
                for run in list(runs.values()) if self.link.shared else ():
                    _show(run, watch)
        finally:
            self.link.client.cancel([run.future for run in runs.values() if run.future], force=True)

    def _submit(self, run: Run, runs: dict[str, Run], done: SimpleQueue[Future], again: bool = False) -> None:
        label = run.cell.name.replace(" ", "_")
        if self.link.shared:
            future = self.link.submit("play", run.spec, label=label)
        else:
            files = read_files(run.cell.folder)
            future = self.link.submit("play_on", run.spec, files, self.seconds, label=label, priority=int(again))
        run.future = future
        runs[future.key] = run
        future.add_done_callback(done.put)

    def _take(self, run: Run, future: Future) -> bool:
        """Whether the run is finished, once what its task gave is on the disk."""
        files = self.link.value(future, run.cell.name)
        if self.link.shared:
            return True
        with locked_run(run.cell.folder):
            write_files(run.cell.folder, files)
        return is_done(run.cell)

    def _spec(self, cell: Cell) -> RunSpec:
        return spec_of(cell, self.data_dir, self.workers, self.link.options.cores)


def spec_of(cell: Cell, data_dir: Path | None, workers: int | None, cores: int, labels: str = "") -> RunSpec:
    """A run as plain data."""
    return {
        "settings": write_table(cell.settings),
        "setting": cell.setting,
        "folder": str(cell.folder.resolve()),
        "data_dir": str(data_dir.resolve()) if data_dir else os.environ.get("FEDPCA_DATA"),
        "workers": workers,
        "cores": cores,
        "labels": labels,
    }


def _finished(done: SimpleQueue[Future]) -> Iterator[Future]:
    """The tasks that have ended; waits a moment for the first one."""
    try:
        yield done.get(timeout=LOOK_SECONDS)
        while True:
            yield done.get_nowait()
    except Empty:
        return


def _show(run: Run, watch: Watch) -> None:
    for line in run.record.new_rounds():
        watch(run.cell, line)


def _await_disk(cell: Cell) -> None:
    """Returns once this machine sees that the run is finished: a shared disk may show it later."""
    deadline = time.monotonic() + DISK_SECONDS
    while not is_done(cell) and time.monotonic() < deadline:
        time.sleep(0.2)
