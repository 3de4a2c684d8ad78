"""A system's end of a race: it plays rounds when told to, says how long they took, and waits for the next word.

The words are lines on standard input (`5` for five rounds, `quit`), the answers JSON lines on standard output: `ready`
after a round to warm up, then the `seconds` of each round asked for and their mean `cpu`, and at the end `peak_mb`;
child processes count too. Between rounds of one word nothing is looked up, so that short ones find their caches warm.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

TICKS = os.sysconf("SC_CLK_TCK")


class Racer:
    """Takes standard input and output for itself; what else is printed goes to standard error."""

    def __init__(self, start: Iterable[Tensor]) -> None:
        self.start = [weight.detach().clone() for weight in start]
        self.words, self.answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        self.left = 0  # rounds still to play at this word
        self.began = self.used = 0.0  # time when the present round began, CPU time when the first one did
        self.seconds: list[float] = []

    def pause(self, weights: Callable[[], Iterable[Tensor]]) -> bool:
        """Called after each round: says what they took once all asked for are played, and waits. False: end."""
        now = time.perf_counter()
        if self.left:
            self.seconds.append(now - self.began)
            self.left -= 1
        if not self.left and not self._wait_for_word(weights):
            self._say(peak_mb=peak_megabytes())
            return False
        self.began = time.perf_counter()
        return True

    def _wait_for_word(self, weights: Callable[[], Iterable[Tensor]]) -> bool:
        """Says what the last rounds took, and whether there is a word for more."""
        if self.seconds:
            self._say(seconds=self.seconds, cpu=(cpu_seconds() - self.used) / len(self.seconds))
        else:
            self._say(ready=True, moved=distance(self.start, weights()))
        word = self.words.readline().strip()
        if not word.isdigit():
            return False
        self.left, self.seconds, self.used = int(word), [], cpu_seconds()
        return True

    def _say(self, **answer: object) -> None:
        self.answers.write(json.dumps(answer) + "\n")


@torch.no_grad()
def distance(before: Iterable[Tensor], after: Iterable[Tensor]) -> float:
    """How far all weights together have moved: systems that do the same work agree on it."""
    squares = [float((b - a).double().square().sum()) for a, b in zip(before, after, strict=True)]
    return math.sqrt(sum(squares))


def family(pid: int) -> list[int]:
    """A process and all its descendants that live."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        if fields := _fields(path):
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def cpu_seconds() -> float:
    """What this process and its living descendants have used."""
    return time.process_time() + cpu_of(family(os.getpid())[1:])


def cpu_of(pids: Iterable[int]) -> float:
    """CPU seconds that processes have used, to the hundredth."""
    stats = [_fields(Path(f"/proc/{pid}/stat")) for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats if fields) / TICKS


def peak_megabytes() -> float:
    """Peak resident memory of this process and its descendants, added up; what they share counts more than once."""
    return sum(map(_high_water, family(os.getpid()))) / 1024


def _high_water(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _fields(stat: Path) -> list[str]:
    """The fields after the process's name: state, parent, …; nothing if it is gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []
