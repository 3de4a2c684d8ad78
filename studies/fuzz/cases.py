"""Plays numbered cases of a target: each ends accepted or refused in plain words; all else is a finding."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from ctypes import CDLL
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from types import FrameType

from fedpca.errors import MAX_MESSAGE, UserError

MAX_GROWTH = 1.05  # of memory: its median in the second half of the cases over that in the first, after a warm-up
WARM_UP = 0.2  # share of the cases whose memory does not count: modules are loaded, pools are filled
FEW = 500  # cases, with fewer of which memory says nothing
SHOWN = 12  # lines of a trace

Play = Callable[[Random], bool]  # whether the case was accepted; a `UserError` says that and why it was refused


@dataclass(frozen=True)
class Door:
    """A target that is open: what plays a case, and the process whose memory must not grow."""

    play: Play
    process: int = 0  # this one
    end: Callable[[], None] = lambda: None  # looks at what all cases left behind


@dataclass(frozen=True)
class Target:
    """What is tried: how many cases in full form, how long one may take, and how to begin, in an empty folder."""

    name: str
    cases: int
    seconds: float
    open: Callable[[Path], AbstractContextManager[Door]]


@dataclass
class Tally:
    """What came of the cases."""

    target: str
    cases: int = 0
    refused: int = 0
    accepted: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    memory: list[int] = field(default_factory=list)  # bytes, in equal steps

    @property
    def growth(self) -> float | None:
        """Memory of the second half over that of the first; None where too few cases were played to say."""
        own = self.memory[int(WARM_UP * len(self.memory)) :]
        if self.cases < FEW or len(own) < 4:
            return None
        return median(own[len(own) // 2 :]) / median(own[: len(own) // 2])

    @property
    def grew(self) -> bool:
        """Whether memory grew beyond its bound."""
        return (self.growth or 1) > MAX_GROWTH


class HangError(BaseException):
    """A case took longer than it may; no `Exception`, so that nobody in between takes it for a broken file."""


def play_cases(
    target: Target, seed: int, numbers: Sequence[int], folder: Path, tell: Callable[[int], None] = lambda number: None
) -> Tally:
    """What comes of these cases; `tell` gets the number of each before it is played."""
    tally, began, step = Tally(target.name), time.monotonic(), max(1, len(numbers) // 100)
    with target.open(folder) as door:
        for count, number in enumerate(numbers):
            tell(number)
            _play(target, door, seed, number, tally)
            if len(numbers) >= FEW and count % step == 0:
                tally.memory.append(resident(door.process))
        with noted(tally, f"{target.name}: after all cases"):
            door.end()
    tally.seconds = time.monotonic() - began
    return tally


def _play(target: Target, door: Door, seed: int, number: int, tally: Tally) -> None:
    tally.cases += 1
    with noted(tally, f"{target.name} --seed {seed} --case {number}"), limited(target.seconds):
        try:
            accepted = door.play(Random(f"{target.name} {seed} {number}"))
        except UserError as error:
            require_plain_message(str(error))
            tally.refused += 1
        else:
            tally.accepted += accepted
            tally.refused += not accepted


@contextmanager
def noted(tally: Tally, case: str) -> Iterator[None]:
    """Any exception, and any warning that a person would see, as a finding."""
    try:
        with warnings.catch_warnings(record=True) as seen:
            yield
        tally.findings += [f"{case}: {one.category.__name__}: {one.message}" for one in seen]
    except (Exception, HangError, SystemExit) as error:
        tally.findings.append(f"{case}: {''.join(traceback.format_exception(error)[-SHOWN:]).rstrip()}")


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends what takes longer, where the system has alarms; what is deaf to them is ended by the process above."""

    def end(number: int, frame: FrameType | None) -> None:
        raise HangError(f"it took more than {seconds:g} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def require_plain_message(message: str) -> None:
    """A refusal says something, in few printable lines, and is no trace."""
    assert message.strip(), "a refusal without a word"
    assert len(message) <= MAX_MESSAGE, f"a refusal of {len(message)} characters"
    assert all(line.isprintable() for line in message.split("\n")), f"control characters in {message!r}"
    assert "Traceback (most" not in message, message


def resident(process: int = 0) -> int:
    """Bytes of memory that a process holds, this one if none is named, without what it only waits to give back."""
    if not process:
        gc.collect()
        with suppress(OSError, AttributeError):  # another C library
            CDLL(None).malloc_trim(0)
    try:
        pages = Path(f"/proc/{process or 'self'}/statm").read_text(encoding="ascii").split()[1]
    except OSError:  # no Linux
        return 1
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def bound_memory(most: int) -> None:
    """Makes allocations of more than so many bytes in all fail: nonsense shall not take the machine along."""
    if sys.platform != "linux":
        return
    from resource import RLIMIT_AS, getrlimit, setrlimit

    setrlimit(RLIMIT_AS, (most, getrlimit(RLIMIT_AS)[1]))
