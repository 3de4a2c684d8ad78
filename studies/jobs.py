"""Work on many federations at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

Spec = Mapping[str, object]  # what a federation is like, see `record.settings`
Item = TypeVar("Item")  # a federation, as a spec or a case


def work_through(work: Callable[[Item, Path], str], specs: Sequence[Item], out: Path, jobs: int) -> None:
    """Does the work for every federation, in so many processes, and prints the name of each that is finished."""
    if jobs == 1:
        _print_names(map(work, specs, [out] * len(specs)), len(specs))
        return
    with ProcessPoolExecutor(jobs) as pool:
        _print_names(pool.map(work, specs, [out] * len(specs)), len(specs))


def _print_names(names: Iterable[str], total: int) -> None:
    for done, name in enumerate(names, start=1):
        print(f"{done}/{total} {name}", flush=True)
