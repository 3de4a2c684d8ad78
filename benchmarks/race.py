"""Systems side by side: each in its own process, one round in turns, while all others stand still."""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.quiet import busy_seconds, wait_for_quiet
from benchmarks.racer import cpu_of, family
from benchmarks.workloads import cores

ROOT = Path(__file__).parents[1]
REPLY_TIMEOUT = 900  # seconds after which an entrant that says nothing counts as broken
END_TIMEOUT = 10  # seconds between an entrant's last word and its end by force


@dataclass(frozen=True)
class Entry:
    """How to start a system, and how often it plays."""

    command: Sequence[str]
    rounds: int = 1  # in each turn: several where a round is short, so that caches are warm for most
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = ROOT


class EntrantError(Exception):
    """An entrant ended too early; its last words."""


@dataclass
class Result:
    """What one entrant needed."""

    start: float  # seconds from the call of the program to the end of its first round
    moved: float  # see `racer.distance`
    seconds: list[float] = field(default_factory=list)  # of each round
    cpu: list[float] = field(default_factory=list)  # of a round, in each turn
    others: list[float] = field(default_factory=list)  # share of the machine that other processes took, in each turn
    peak_mb: float = 0.0

    @property
    def median(self) -> float:
        """Seconds of a round."""
        return statistics.median(self.seconds)

    @property
    def median_cpu(self) -> float:
        """CPU seconds of a round, children included."""
        return statistics.median(self.cpu)


class Entrant:
    """A process that speaks as `racer` says; stopped between its turns, since some systems poll while they wait."""

    def __init__(self, entry: Entry) -> None:
        began = time.perf_counter()
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  the process writes to it until its end
        self.process = subprocess.Popen(
            entry.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=entry.folder,
            env=os.environ | entry.environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.words, self.answers = self.process.stdin, self.process.stdout
        try:
            first = self._answer()
        except EntrantError:
            self.end()
            raise
        self.result = Result(time.perf_counter() - began, first["moved"])
        self.process.send_signal(signal.SIGSTOP)

    def play(self, rounds: int) -> None:
        """Some rounds, one after the other, into the result."""
        self.process.send_signal(signal.SIGCONT)
        before = self._spent()
        answer = self._tell(str(rounds))
        wall, busy, own = (now - then for now, then in zip(self._spent(), before, strict=True))
        self.process.send_signal(signal.SIGSTOP)
        self.result.seconds += answer["seconds"]
        self.result.cpu.append(answer["cpu"])
        self.result.others.append(max(0.0, busy - own) / wall / cores())

    def finish(self) -> Result:
        """Its result with the peak memory; the process is gone."""
        self.process.send_signal(signal.SIGCONT)
        self.result.peak_mb = self._tell("quit")["peak_mb"]
        self.end()
        return self.result

    def end(self) -> None:
        """Ends the process and what it started: in peace if they do so soon, else by force."""
        if self.process.returncode is not None:  # its id may be another's by now
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        members = family(self.process.pid)
        with suppress(BrokenPipeError):
            self.words.close()
        deadline = time.perf_counter() + END_TIMEOUT
        while time.perf_counter() < deadline and (self.process.poll() is None or any(map(_is_alive, members))):
            time.sleep(0.05)
        for member in filter(_is_alive, members):
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        self.process.wait()

    def _spent(self) -> tuple[float, float, float]:
        """Seconds on the clock, CPU seconds of the machine, and of this entrant."""
        return time.perf_counter(), busy_seconds(), cpu_of(family(self.process.pid))

    def _tell(self, word: str) -> dict[str, Any]:
        try:
            self.words.write(word + "\n")
            self.words.flush()
        except BrokenPipeError:
            pass  # its last words are read below
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        if not select.select([self.answers], [], [], REPLY_TIMEOUT)[0]:
            raise EntrantError(f"said nothing for {REPLY_TIMEOUT} s")
        if line := self.answers.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.errors.seek(0)
        raise EntrantError(self.errors.read()[-2000:].strip() or f"ended with code {self.process.wait()}")


def _is_alive(pid: int) -> bool:
    """Whether a process is there and is not merely waiting for its parent to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def race(entries: Mapping[str, Entry], turns: int, max_wait: float) -> tuple[dict[str, Result], dict[str, str]]:
    """The result of each system, and the last words of each that broke.

    While others use the machine the race waits, but no more than `max_wait` seconds in all.
    """
    running: dict[str, Entrant] = {}
    broken: dict[str, str] = {}
    try:
        for name, entry in entries.items():
            with _noting(name, broken, running):
                running[name] = Entrant(entry)
                print(f"{name}: ready after {running[name].result.start:.0f} s", file=sys.stderr)
        for _ in range(turns):
            for name in list(running):
                max_wait = wait_for_quiet(max_wait)
                with _noting(name, broken, running):
                    running[name].play(entries[name].rounds)
        results = {}
        for name in list(running):
            with _noting(name, broken, running):
                results[name] = running[name].finish()
        return results, broken
    finally:
        for entrant in running.values():
            entrant.end()


@contextmanager
def _noting(name: str, broken: dict[str, str], running: dict[str, Entrant]) -> Iterator[None]:
    """Takes an entrant that breaks out of the race, and notes its last words."""
    try:
        yield
    except EntrantError as error:
        print(f"{name}: {error}", file=sys.stderr)
        broken[name] = str(error)
        if entrant := running.pop(name, None):
            entrant.end()
