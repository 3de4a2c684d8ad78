"""What Dask carries: one function that scheduler and workers know by its name, called with texts, numbers and bytes.

The scheduler imports this module too, so PyTorch is imported only where a task runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from fedpca.errors import UserError
from fedpca.runs.versions import versions

PYTHON, OURS, DASK = "python", "fedpca", "distributed"
Result = dict[str, Any]  # {"value": …}, or the fields of `runs.processes.Failed`


class Demands(TypedDict):
    """What a worker must be like."""

    versions: dict[str, str]  # as `shown_versions` gives them
    probe: NotRequired[tuple[str, str]]  # a file that it must see, and what stands in it, where run folders are shared
    here: NotRequired[str]  # the folder in which the command was given: models and methods of the user may lie there


class Greeting(TypedDict):
    """What a worker is like."""

    versions: dict[str, str]
    sees: bool  # the probe


def run_task(name: str, demands: Demands, *values: Any) -> Result:  # noqa: ANN401 (plain data of any kind)
    """What a task of `at_worker` gives, or how it failed."""
    try:
        require(demands)
        from fedpca.cluster.at_worker import TASKS

        return {"value": TASKS[name](*values)}
    except BaseException as error:  # SystemExit too: a model's code must not end the worker
        from fedpca.runs.processes import failed_by

        return asdict(failed_by(error))


def kept(data: bytes) -> bytes:
    """The very bytes: as the result of a task they go from worker to worker, and are made again where one dies."""
    return data


def greet(probe: tuple[str, str] | None = None) -> Greeting:
    """What this process is like."""
    return {"versions": shown_versions(), "sees": probe is not None and sees(*probe)}


def require(demands: Demands) -> None:
    """Refuses to work with other versions, or without the disk; makes the user's own modules importable."""
    from distributed import get_worker

    address = get_worker().address
    if message := difference(demands["versions"], shown_versions()):
        raise UserError(f"the Dask worker {address} {message}")
    if "probe" in demands and not sees(*demands["probe"]):
        raise UserError(unseen(address, demands["probe"][0]))
    if (here := demands.get("here")) and here not in sys.path and Path(here).is_dir():
        sys.path.append(here)


def shown_versions() -> dict[str, str]:
    """The versions that decide about bits and about what is understood; of Python the first two numbers.

    What follows a +, such as cpu or cu126, tells one build of PyTorch from another, and is left out.
    """
    from importlib.metadata import version

    found = {name: text.partition("+")[0] for name, text in versions().items()} | {DASK: version(DASK)}
    return {**found, PYTHON: ".".join(found[PYTHON].split(".")[:2])}


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """In words, what another process has other versions of; empty if nothing."""
    others = [name for name in here if there.get(name) != here[name]]
    if not others:
        return ""
    listed = ", ".join(f"{name} {there.get(name)}" for name in others)
    wanted = ", ".join(f"{name} {here[name]}" for name in others)
    return f"has {listed}, but here it is {wanted}: install the same versions at both ends"


def sees(path: str, token: str) -> bool:
    """Whether the file is there, with these words in it."""
    try:
        return Path(path).read_text(encoding="utf-8") == token
    except OSError:
        return False


def unseen(address: str, probe: str) -> str:
    """That a worker does not have the disk of the run folders, and what to do."""
    return (
        f"the Dask worker {address} does not see {Path(probe).parent}, where the run folders are: choose an --out on a "
        "disk that all workers have, or --dask-disk stream, with which they send them"
    )
