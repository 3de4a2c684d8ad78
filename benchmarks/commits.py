"""A round at another commit and at this one, in turns in one run: `python -m benchmarks commits CHECKOUT [--json]`.

CHECKOUT is a folder with that commit's `src` and `benchmarks`. Each side is a process that imports its own; the other
commit takes part twice, so that the run itself tells by how much two equal sides differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.entries import SHORT, TURNS
from benchmarks.race import ROOT, Entry, Result, race

SYSTEMS = {  # the rounds that each workload times
    "W1": {"W1": "fedpca"},
    "W2": {"W2": "fedpca"},
    "W3": {"W3": "fedpca"},
    "W5": {"W1": "fedpca-hs", "W3": "fedpca-hs"},
}
SAME_WORK = 1e-3  # how far apart the sides' first steps may be, as a share


def measure(checkout: Path, names: Sequence[str], repeat: int | None, max_wait: float) -> dict[str, dict[str, object]]:
    """By workload: medians of a round, the new one's over the old one's, and the old one's over its own."""
    return {
        f"{workload}, {system}": _compare(checkout, system, workload, repeat, max_wait)
        for name in names
        for workload, system in SYSTEMS[name].items()
    }


def _compare(checkout: Path, system: str, workload: str, repeat: int | None, max_wait: float) -> dict[str, object]:
    sides = {"old": checkout, "old again": checkout, "new": ROOT}
    entries = {side: _entry(folder, system, workload) for side, folder in sides.items()}
    print(f"{workload}, {system}", file=sys.stderr)
    results, broken = race(entries, repeat or TURNS[workload], max_wait)
    if broken:
        raise RuntimeError(f"{workload}, {system}: {broken}")
    return _figures(results["old"], results["old again"], results["new"])


def _entry(folder: Path, system: str, workload: str) -> Entry:
    path = os.pathsep.join((str(folder / "src"), str(folder)))
    command = [sys.executable, "-m", "benchmarks.systems", system, workload]
    return Entry(command, 25 if workload in SHORT else 1, {"PYTHONPATH": path}, folder)


def _figures(old: Result, again: Result, new: Result) -> dict[str, object]:
    """Times in seconds. `slower`: whether the new side is further above the old ones than these are apart."""
    both = statistics.median([*old.seconds, *again.seconds])
    apart = max(old.median, again.median) / min(old.median, again.median)
    return {
        "seconds": {
            "old": round(old.median, 5),
            "old again": round(again.median, 5),
            "new": round(new.median, 5),
        },
        "new_over_old": round(new.median / both, 3),
        "old_over_old": round(apart, 3),
        "fastest_new_over_old": round(min(new.seconds) / min(*old.seconds, *again.seconds), 3),
        "others": round(statistics.median([*old.others, *again.others, *new.others]), 2),
        "same_work": abs(new.moved / old.moved - 1) < SAME_WORK,
        "slower": new.median / both > apart,
    }


def table(figures: dict[str, dict[str, object]]) -> str:
    """A row for each workload."""
    columns = ("new_over_old", "old_over_old", "fastest_new_over_old", "others", "same_work", "slower")
    head = f"{'':16}" + "".join(f"{column.replace('_', ' '):>22}" for column in columns)
    return "\n".join([head, *(f"{n:16}" + "".join(f"{row[c]!s:>22}" for c in columns) for n, row in figures.items())])


def main(words: Sequence[str]) -> None:
    """Prints the table, or JSON alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks commits", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of the other commit")
    parser.add_argument("--workloads", default=",".join(SYSTEMS), help="some of %(default)s")
    parser.add_argument("--repeat", type=int, help="turns of each side; as many as the workload says if not given")
    parser.add_argument("--max-wait", type=float, default=120.0, help="seconds to wait for quiet, per workload")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args(words)
    checkout = options.checkout.resolve()
    checkout = checkout.parent if checkout.name == "src" else checkout
    names = options.workloads.split(",")
    if unknown := sorted(set(names) - set(SYSTEMS)):
        parser.error(f"there is no workload {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    if lacking := [name for name in ("src/fedpca", "benchmarks/systems.py") if not (checkout / name).exists()]:
        parser.error(f"{checkout} is no checkout of fedpca: it has no {' and no '.join(lacking)}")
    figures = measure(checkout, names, options.repeat, options.max_wait)
    print(json.dumps(figures, indent=2) if options.json else table(figures))
