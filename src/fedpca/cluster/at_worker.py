"""What a Dask worker does: looks at a setting, plays a run to its end or for a while, answers for some clients.

A worker may do several of these at a time, in threads of one process. They share what is prepared of the data. Models
that draw random numbers in their passes do so from a generator that all threads share, so such runs take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedpca.atomic import LockedError
from fedpca.cluster.bench import answer
from fedpca.cluster.files import read_files, write_files
from fedpca.cluster.prepared import RunSpec, cell_of, data_of
from fedpca.core import Net
from fedpca.data.federation import Federation
from fedpca.models.build import GENERATOR, build_model
from fedpca.runs.cell import Cell
from fedpca.runs.folder import RoundLine
from fedpca.runs.jobs import default_workers, words_of
from fedpca.runs.run import run_cell

LOCK_SECONDS = 150.0  # that a run folder may stay locked by a worker that died: NFS lets go after 90


class Stopped(Exception):
    """The task was cancelled: nobody waits for it any more."""


class Paused(Exception):
    """The run has gone on for long enough, and its checkpoint is written."""


def look(spec: RunSpec) -> str:
    """What there is to say of a setting before it is played; its errors are found here."""
    cell = cell_of(spec)
    dataset, federation = data_of(cell, spec)
    return words_of(cell.settings, dataset, federation, 1, _workers(spec, cell, federation))


def play(spec: RunSpec) -> None:
    """Plays a run to its end in its own folder, from its checkpoint if it has one."""
    cell, is_wanted = cell_of(spec), wanted()

    def watch(_: Cell, __: RoundLine) -> None:
        if not is_wanted():
            raise Stopped

    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return _play(cell, spec, watch)
        except LockedError:  # by a worker that was given up, and that stops after its round
            if time.monotonic() > deadline or not is_wanted():
                raise
            time.sleep(1)


def play_on(spec: RunSpec, files: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
    """Plays a run from these files on, to its end or for so long, and gives its files."""
    from distributed import get_worker

    is_wanted, began = wanted(), time.monotonic()

    def watch(cell: Cell, line: RoundLine) -> None:
        if not is_wanted():
            raise Stopped
        saved = line["round"] % cell.settings.checkpoint_every == 0
        if saved and line["round"] < cell.settings.rounds and time.monotonic() - began >= seconds:
            raise Paused

    with TemporaryDirectory(prefix="fedpca-", dir=get_worker().local_directory) as name:
        cell = cell_of(spec, Path(name))
        write_files(cell.folder, files)
        with suppress(Paused):
            _play(cell, spec, watch)
        return read_files(cell.folder)


def _play(cell: Cell, spec: RunSpec, watch: Callable[[Cell, RoundLine], None]) -> None:
    dataset, federation = data_of(cell, spec)
    with alone_if_drawing(cell, federation):
        run_cell(cell, dataset, federation, _workers(spec, cell, federation), watch)


def _workers(spec: RunSpec, cell: Cell, federation: Federation) -> int:
    return spec["workers"] or default_workers(cell.settings, federation, cores=spec["cores"])


def alone_if_drawing(cell: Cell, federation: Federation) -> AbstractContextManager[Any]:
    """Keeps other threads from PyTorch's one generator while a model is played that draws from it."""
    return GENERATOR if _probe(cell, federation).draws else nullcontext()


def _probe(cell: Cell, federation: Federation) -> Net:
    return build_model(cell.settings.model, federation.shape, len(federation.classes), 0)


def wanted() -> Callable[[], bool]:
    """Whether somebody still waits for the task that this thread works on: Dask ends no thread by itself."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    return is_wanted


TASKS: Mapping[str, Callable[..., Any]] = {"look": look, "play": play, "play_on": play_on, "answer": answer}
