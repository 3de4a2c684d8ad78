"""Runs side by side, in processes that each play one after another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread

from fedpca.errors import FailedError, RunError, UserError, failure_of
from fedpca.runs.cell import Cell, Watch
from fedpca.runs.folder import RoundLine
from fedpca.runs.run import Prepared, run_cell

THREADS = "OMP_NUM_THREADS"  # of a kernel; clients are what a process works on at the same time


class CrashError(Exception):
    """An exception in another process; its text is the trace from there."""


@dataclass(frozen=True)
class Failed:
    """What ended a process, as text: an exception of somebody's own class might not survive the pipe."""

    text: str  # the message of an error that the user can fix, else the trace
    code: int | None = None  # the exit code that belongs to such a message

    def as_exception(self) -> Exception:
        """The same in this process."""
        kinds = {UserError.code: UserError, FailedError.code: FailedError}
        return CrashError(self.text) if self.code is None else kinds[self.code](self.text)


def failed_by(error: BaseException) -> Failed:
    """What there is to say of an exception that is being handled."""
    known = error if isinstance(error, UserError) else failure_of(error)
    return Failed(str(known), known.code) if known else Failed(traceback.format_exc())


@dataclass
class Job:
    """A process, the pipe to it, and the run that it plays.

    Each has a pipe of its own: a queue for all would be locked for good by a process that is killed while it writes.
    """

    process: SpawnProcess
    pipe: Connection
    cell: Cell | None = None


def play_in_processes(
    cells: Sequence[Cell], jobs: int, workers: Mapping[str, int], data_dir: Path | None, watch: Watch
) -> None:
    """Plays cells to their end in so many processes, the next one for whoever is free; no process outlives the call.

    `workers` are those of each process, by the name of the setting.
    """
    todo = iter(cells)
    with _start_processes(jobs, workers, data_dir) as processes:
        busy = list(processes)
        while busy:
            ready = wait([job.pipe for job in busy])
            for job in [job for job in busy if job.pipe in ready]:
                if not _handle_message(job, todo, watch):
                    busy.remove(job)


def _handle_message(job: Job, todo: Iterator[Cell], watch: Watch) -> bool:
    """Whether the process has more to do, once its message is dealt with: a round, an error, or the wish for a cell."""
    message = _receive(job)
    if isinstance(message, Failed):
        raise message.as_exception()
    if message is not None and job.cell is not None:
        watch(job.cell, message)
        return True
    job.cell = next(todo, None)
    with suppress(OSError):  # that it died is heard next
        job.pipe.send(job.cell)
    return job.cell is not None


def _receive(job: Job) -> RoundLine | Failed | None:
    """The next message of a process; one that has died has none."""
    try:
        message: RoundLine | Failed | None = job.pipe.recv()
    except (EOFError, OSError):
        raise RunError(_death_message(job)) from None
    return message


def _death_message(job: Job) -> str:
    """How the process died, what was lost, and how to go on."""
    job.process.join(10)  # the pipe breaks a moment before
    code = job.process.exitcode or 0
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    cause = " (if memory ran out, fewer --jobs need less)" if code == -9 else ""
    where = f"while it played {job.cell.name}" if job.cell else "before its first run"
    return f"a worker process died {how}{cause} {where}: --resume goes on from the last checkpoint"


@contextmanager
def _start_processes(jobs: int, workers: Mapping[str, int], data_dir: Path | None) -> Iterator[list[Job]]:
    """Processes that wait for cells; killed if this ends by an exception, which run folders survive."""
    spawn, started = multiprocessing.get_context("spawn"), list[Job]()
    try:
        with _child_environment():
            for _ in range(jobs):
                pipe, theirs = spawn.Pipe()
                process = spawn.Process(target=_play_cells, args=(theirs, workers, data_dir), daemon=True)
                process.start()
                theirs.close()  # else a dead process would leave the pipe open
                started.append(Job(process, pipe))
        yield started
        for job in started:
            job.process.join()
    finally:
        for job in started:
            job.process.kill()
        for job in started:
            job.process.join()  # so that nobody holds a run folder when this returns


@contextmanager
def _child_environment() -> Iterator[None]:
    """What processes started here begin with: one thread per kernel, and deaf to Ctrl-C, which their parent answers."""
    given = THREADS in os.environ
    os.environ.setdefault(THREADS, "1")
    try:
        with _defer_interrupts():
            yield
    finally:
        if not given:
            del os.environ[THREADS]


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Puts Ctrl-C off until the end: a process that is half started when it comes would complain."""
    missed = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: missed.append(number))
    try:
        with _sigint_blocked():
            yield
    finally:
        signal.signal(signal.SIGINT, before)
    if missed:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Keeps Ctrl-C from this thread and, for good, from processes that it starts; other threads may still take it."""
    if sys.platform == "win32":
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # beforehand: it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In the other process


def _play_cells(pipe: Connection, workers: Mapping[str, int], data_dir: Path | None) -> None:
    """Plays the cells that the parent sends until there are none; errors are sent to it, not printed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be inherited
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        prepared = Prepared(data_dir)
        pipe.send(None)  # asks for a cell
        while cell := pipe.recv():
            run_cell(cell, *prepared.of(cell), workers[cell.setting], lambda _, line: pipe.send(line))
            pipe.send(None)
    except BaseException as error:  # SystemExit too: a model's code that ends the process ends the experiment
        _send(pipe, failed_by(error))


def _send(pipe: Connection, failed: Failed) -> None:
    with suppress(OSError):  # nobody listens any more
        pipe.send(failed)


def _end_with_parent() -> None:
    """Waits for the parent's end, however it comes, and ends this process then: a round may take minutes."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
