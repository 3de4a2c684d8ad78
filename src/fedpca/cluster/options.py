"""What `--dask` and the options beside it ask for; neither Dask nor torch is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, get_args

from fedpca.errors import UserError

Disk = Literal["shared", "stream"]
CORES = "cores"  # a resource of this name also says how many clients of a run are trained at the same time
LOCAL = re.compile(r"local(?::([1-9]\d{0,3}))?")
ADDRESS = re.compile(r"([a-z]+://)?[^\s/]+:\d{1,5}")


@dataclass(frozen=True)
class ClusterOptions:
    """Where the cluster is, and how runs are played there."""

    address: str  # of a scheduler, a scheduler's file, or local:N
    disk: Disk | None = None  # whether workers write run folders themselves; found out if it is not said
    per_run: Mapping[str, float] = field(default_factory=dict)  # Dask's resources that a run takes
    spread: bool = False  # the clients of a run over all workers, in place of runs

    @property
    def local(self) -> int | None:
        """How many worker processes to start on this machine; None for a cluster that is there."""
        found = LOCAL.fullmatch(self.address)
        return int(found.group(1) or 2) if found else None

    @property
    def cores(self) -> int:
        """How many clients a run trains at the same time, if nobody says so."""
        return max(1, int(self.per_run.get(CORES, 1)))


def read_options(
    dask: str | None, disk: str | None = None, per_run: str | None = None, spread: str | None = None, jobs: int = 1
) -> ClusterOptions | None:
    """The options as the command line has them; None without `--dask`.

    >>> read_options("tcp://10.0.0.1:8786", per_run="GPU=1,cores=4").cores
    4
    """
    if dask is None:
        _refuse_alone({"--dask-disk": disk, "--dask-per-run": per_run, "--spread": spread})
        return None
    if jobs > 1:
        raise UserError(f"--jobs {jobs} plays runs in processes of this machine, --dask on a cluster: leave one out")
    if not (LOCAL.fullmatch(dask) or _is_address(dask) or dask.endswith(".json")):
        raise UserError(
            f"--dask must be a scheduler's address such as tcp://10.0.0.1:8786, the path of its --scheduler-file "
            f"(.json), or local:N for N processes of this machine, got {dask!r}"
        )
    if disk is not None and disk not in get_args(Disk):
        raise UserError(f"--dask-disk must be {' or '.join(get_args(Disk))}, got {disk!r}")
    if spread not in (None, "clients"):
        raise UserError(f"--spread must be clients, got {spread!r}; without it every run is played by one worker")
    return ClusterOptions(dask, disk, _resources(per_run or ""), spread is not None)  # type: ignore[arg-type]


def _is_address(text: str) -> bool:
    return ADDRESS.fullmatch(text) is not None and not text.startswith("local:")


def _refuse_alone(given: Mapping[str, str | None]) -> None:
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name} {value} says how a Dask cluster is used: give its address with --dask ADDRESS")


def _resources(text: str) -> dict[str, float]:
    """Amounts by name, as `dask worker --resources` announces them."""
    found = {}
    for part in filter(None, text.split(",")):
        name, equals, amount = part.partition("=")
        try:
            found[name.strip()] = float(amount)
        except ValueError:
            equals = ""
        if not (equals and name.strip() and isfinite(found[name.strip()]) and found[name.strip()] > 0):
            raise UserError(
                f"--dask-per-run must be NAME=AMOUNT[,NAME=AMOUNT] with names that workers announce by --resources, "
                f"such as GPU=1, got {text!r}"
            )
    return found
