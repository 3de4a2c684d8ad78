"""What else the machine does."""

import os
import time
from pathlib import Path

from benchmarks.workloads import cores

SHARE = 0.1  # of the machine: what may run besides when it counts as quiet
LOOK = 0.5  # seconds


def busy_seconds() -> float:
    """CPU seconds that all processes have used since the machine began, and those that its host took away."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(max_wait: float) -> float:
    """Waits until nothing else runs, but only so many seconds; how many are left."""
    while max_wait > 0:
        began, before = time.perf_counter(), busy_seconds()
        time.sleep(LOOK)
        waited = time.perf_counter() - began
        if busy_seconds() - before < SHARE * cores() * waited:
            break
        max_wait -= waited
    return max_wait
