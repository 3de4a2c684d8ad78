"""Who races on a workload, and in which ways: so many workers with so many cores each."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.race import ROOT, Entry
from benchmarks.workloads import WORKLOADS, cores

PEERS = ("flower", "pfl", "fluke", "fedlab")
TURNS = {"W1": 5, "W2": 3, "W3": 9, "W4-100": 9, "W4-1000": 5, "W4-5000": 3, "W6": 3}
SHORT = ("W3", "W4-100")  # where all but Flower play several rounds in each turn, for about as long: 25 of ours, else 5
LONG = ("W2", "W4-100", "W4-1000", "W4-5000")  # where every system runs in its first way alone, as a rule its fastest

MANY, ALL, ONE = (cores(), 1), (1, cores()), (1, 1)  # workers, cores of each
WAYS = {
    "limit": [ALL],
    "naive": [ALL],
    "flower": [MANY, ALL],
    "pfl": [MANY, ALL],
    "fluke": [ALL],
    "fedlab": [MANY, ALL],
}
# small models are no faster on all cores, and far slower once anything else runs there
SMALL = ("mlp", "resnet8")
WAYS_OF_SMALL = {
    "limit": [ONE, ALL],
    "naive": [ONE, ALL],
    "flower": [MANY, ALL],
    "pfl": [MANY, ONE, ALL],
    "fluke": [ONE, ALL],
    "fedlab": [ONE, MANY, ALL],
}

Ways = dict[str, Entry]  # by name, such as "pfl 2x1"


def ways_of(system: str, workload: str) -> Ways:
    """The ways to run a system; its time is that of the fastest."""
    if system.startswith("fedpca"):  # finds its own way
        return {system: Entry(_command(system, workload), 25 if workload in SHORT else 1)}
    ways = (WAYS_OF_SMALL if WORKLOADS[workload].model in SMALL else WAYS)[system]
    chosen = dict.fromkeys(ways[:1] if workload in LONG else ways)
    return {f"{system} {workers}x{threads}": _entry(system, workload, workers, threads) for workers, threads in chosen}


def python_of(peer: str) -> Path:
    """The interpreter of a peer's virtual environment."""
    return ROOT / ".venvs" / peer / "bin" / "python"


def _entry(system: str, workload: str, workers: int, threads: int) -> Entry:
    command = _command(system, workload)
    if system in ("flower", "pfl", "fedlab"):
        command.append(str(workers))
    environment = {} if threads == cores() else {"OMP_NUM_THREADS": str(threads)}
    return Entry(command, 5 if workload in SHORT and system != "flower" else 1, environment)


def _command(system: str, workload: str) -> list[str]:
    if system in PEERS:
        return [str(python_of(system)), "-m", f"benchmarks.peers.{system}", workload]
    return [sys.executable, "-m", "benchmarks.systems", system, workload]
