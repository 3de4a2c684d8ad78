"""A system's end of a race: it plays a round when told to, says how long that took, and waits for the next word.

The words are lines on standard input (`round`, `quit`), the answers JSON lines on standard output: `ready` after a
round to warm up, `seconds` and `cpu` of each further one, and at the end `peak_mb`; child processes count too.
"""

from __future__ import annotations

import json
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
        self.began: tuple[float, float] | None = None  # time and CPU time when the present round began

    def pause(self, weights: Callable[[], Iterable[Tensor]]) -> bool:
        """Called after each round: says what it took, then waits. True: play another one; False: end."""
        now = time.perf_counter()
        if self.began is None:
            self._say(ready=True, moved=distance(self.start, weights()))
        else:
            self._say(seconds=now - self.began[0], cpu=cpu_seconds() - self.began[1])
        if self.words.readline().strip() != "round":
            self._say(peak_mb=peak_megabytes())
            return False
        used = cpu_seconds()
        self.began = (time.perf_counter(), used)
        return True

    def _say(self, **answer: object) -> None:
        self.answers.write(json.dumps(answer) + "\n")


@torch.no_grad()
def distance(before: Iterable[Tensor], after: Iterable[Tensor]) -> float:
    """How far all weights together have moved: systems that do the same work agree on it."""
    squares = [float((b - a).double().square().sum()) for a, b in zip(before, after, strict=True)]
    return sum(squares) ** 0.5


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
