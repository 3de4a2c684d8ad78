"""A run as plain data, and what a Dask worker prepares of it; the threads of a worker share its data."""

from __future__ import annotations

import tomllib
from pathlib import Path
from threading import Lock
from typing import TypedDict

from fedpca.data.datasets import Dataset
from fedpca.data.federation import Federation
from fedpca.runs.cell import Cell
from fedpca.runs.check import check_experiment
from fedpca.runs.run import Prepared


class RunSpec(TypedDict):
    """A run as plain data."""

    settings: str  # TOML
    setting: str  # its name
    folder: str  # where the worker writes it itself
    data_dir: str | None  # taken where the worker has it
    workers: int | None  # clients at the same time, if somebody says so
    cores: int  # else as many as these allow
    labels: str  # the fingerprint of the clients' data, where the workers are asked for single clients


class _Shared:
    """What the threads of this process have prepared: one federation, as a rule that of the run before."""

    def __init__(self) -> None:
        self.lock = Lock()  # one decodes, the others wait and find it done
        self.prepared = Prepared()

    def of(self, cell: Cell, data_dir: str | None) -> tuple[Dataset, Federation]:
        own = Path(data_dir) if data_dir and Path(data_dir).is_dir() else None
        with self.lock:
            if self.prepared.data_dir != own:
                self.prepared = Prepared(own)
            return self.prepared.of(cell)


_shared = _Shared()


def cell_of(spec: RunSpec, folder: Path | None = None) -> Cell:
    """The run of a specification; its settings are checked once more, where its methods and models must be known."""
    experiment = check_experiment(tomllib.loads(spec["settings"]), "the run's settings")
    return Cell(experiment, folder or Path(spec["folder"]), spec["setting"])


def data_of(cell: Cell, spec: RunSpec) -> tuple[Dataset, Federation]:
    """The run's data, as this worker finds them."""
    return _shared.of(cell, spec["data_dir"])


def address() -> str:
    """This worker's own."""
    from distributed import get_worker

    address: str = get_worker().address
    return address
