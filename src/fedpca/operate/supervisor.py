"""Runs one command; when it ends, is told to end, or its starter is gone, all that it started ends with it.

`python -m fedpca.operate.supervisor COMMAND …`. Flower's processes leave others behind that try for ever to reach them;
one of these holds a run's folder.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

GRACE = 5.0  # seconds that processes have to end by themselves
ADOPT = 36  # Linux' PR_SET_CHILD_SUBREAPER: what loses its parent becomes ours
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def supervise(command: list[str], grace: float = GRACE) -> int:
    """Runs a command to its end or ours; its exit code, when nothing of it is left."""
    stop, parent = Event(), os.getppid()
    for number in STOPS:
        signal.signal(number, lambda *_: stop.set())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    child = subprocess.Popen(command)
    while child.poll() is None and os.getppid() == parent and not stop.wait(0.2):
        pass
    family, signalled, limit, me = {child.pid}, set[int](), time.monotonic() + grace, os.getpid()
    while (family := alive(family | descendants([me]))) and time.monotonic() < limit:
        first = {child.pid} & family or family  # the command itself may end the others as it should be done
        send(first - signalled, signal.SIGTERM)
        signalled |= first
        time.sleep(0.1)
    while family := alive(family | descendants([me])):
        send(family, signal.SIGKILL)
        time.sleep(0.1)
    return child.wait()


def descendants(pids: Iterable[int]) -> set[int]:
    """Children of processes, their children, and so on."""
    table, found, new = _processes(), set[int](), set(pids)
    while new:
        new = {pid for pid, parent in table.items() if parent in new} - found
        found |= new
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Those that still run; a dead process that nobody has asked for its exit code does not."""
    return set(pids) & _processes().keys()


def send(pids: Iterable[int], number: int) -> None:
    """Signals processes that may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _processes() -> dict[int, int]:
    """The parent of every process that runs, but for the one that lists them."""
    if sys.platform == "linux":
        return {pid: parent for stat in Path("/proc").glob("[0-9]*/stat") for pid, parent in _stat(stat)}
    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,state="], stdout=subprocess.PIPE, text=True) as listing:
        rows = [line.split() for line in listing.communicate()[0].splitlines()]
    return {int(p): int(parent) for p, parent, state in rows if state[0] != "Z" and int(p) != listing.pid}


def _stat(path: Path) -> Iterator[tuple[int, int]]:
    with suppress(OSError):  # ended meanwhile
        state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
        if state not in "ZX":
            yield int(path.parent.name), int(parent)


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
