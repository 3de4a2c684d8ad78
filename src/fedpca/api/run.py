"""`fedpca.run`: what the command of this name does, from Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedpca.api.engine import play_runs, require_training
from fedpca.api.results import Results
from fedpca.cluster.options import read_options
from fedpca.results.read.runs import find_runs
from fedpca.runs.cell import is_done
from fedpca.runs.check import check_experiment, read_settings
from fedpca.runs.jobs import every_run
from fedpca.runs.part import WHOLE, read_part
from fedpca.runs.trackers import choose
from fedpca.settings.base import Table
from fedpca.settings.experiment import Experiment
from fedpca.settings.shipped import settings_file
from fedpca.settings.toml import change


def run(
    experiment: str | Path | Experiment,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    changes: Sequence[str] = (),
    out: str | Path | None = None,
    jobs: int = 1,
    progress: bool = True,
    *,
    workers: int | None = None,
    resume: bool = False,
    data_dir: str | Path | None = None,
    only: Sequence[str] = (),
    log_to: Sequence[str] = (),
    part: str | None = None,
    dask: str | None = None,
    dask_disk: str | None = None,
    dask_per_run: str | None = None,
    spread: str | None = None,
) -> Results:
    """Plays every run of an experiment that is not finished, and gives the results of all of them.

    `experiment` is a settings file, a name of `fedpca list experiments`, or an `Experiment`. The rest are the options
    of `fedpca run`: `changes` is `--set`, `only` is `--setting`.

    >>> import fedpca, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> changes = ["rounds=2", "model.name=mlp"]
    >>> results = fedpca.run("digits", ["fedavg", "median"], [0], changes, out=folder, progress=False)
    >>> [run.method for run in results.runs]
    ['fedavg', 'median']
    >>> results.table["method"].to_pylist()
    ['fedavg', 'median']
    """
    cluster = read_options(dask, dask_disk, dask_per_run, spread, jobs)
    lists = {"methods": methods, "seeds": seeds}
    texts = [*changes, *(f"{key}={json.dumps(list(values))}" for key, values in lists.items() if values)]
    settings = _settings(experiment, texts, only)
    folder = Path(out or Path("runs") / next(iter(settings.values())).name)
    cells = every_run(settings, folder, resume, read_part(part) if part else WHOLE)
    if todo := [cell for cell in cells if not is_done(cell)]:
        trackers = choose(log_to, folder, todo[0].settings.name)
        play_runs(todo, jobs, workers, Path(data_dir) if data_dir else None, trackers, progress, cluster, folder)
    require_training(cells)
    return Results(folder, find_runs([folder]))


def _settings(
    experiment: str | Path | Experiment, changes: Sequence[str], only: Sequence[str]
) -> dict[str, Experiment]:
    if not isinstance(experiment, Experiment):
        return read_settings(settings_file(str(experiment)), changes, only)
    table: Table = experiment.model_dump(mode="json", exclude_none=True)
    for text in changes:
        table = change(table, text)
    return {"": check_experiment(table, "fedpca.run")}
