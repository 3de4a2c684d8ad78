"""`fedpca run`: an experiment's runs with a progress bar, then its tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedpca.api.progress import say
from fedpca.cli.results import show

if TYPE_CHECKING:
    from fedpca.settings.experiment import Experiment


def run_all(
    settings: Mapping[str, Experiment],
    out: Path,
    jobs: int,
    workers: int | None,
    resume: bool,
    data_dir: Path | None,
    again: str,
    log_to: Sequence[str] = (),
) -> None:
    """Plays every run that is not finished, then shows the tables of all."""
    from fedpca.api.engine import play_runs, require_training
    from fedpca.results.read.runs import find_runs
    from fedpca.results.tables import tabulate
    from fedpca.runs.cell import is_done
    from fedpca.runs.jobs import every_run
    from fedpca.runs.processes import CrashError
    from fedpca.runs.trackers import choose

    trackers = choose(log_to, out, next(iter(settings.values())).name)
    cells = every_run(settings, out, resume)
    todo = [cell for cell in cells if not is_done(cell)]
    if finished := len(cells) - len(todo):
        say(f"{finished} of {len(cells)} runs were finished before, in {out}")
    try:
        if todo:
            play_runs(todo, jobs, workers, data_dir, trackers)
    except KeyboardInterrupt:
        say(f"stopped; {again} goes on from the last checkpoint in {out}")
        raise typer.Exit(130) from None
    except CrashError as crash:
        print(crash, end="", file=sys.stderr)
        raise typer.Exit(1) from None
    show(tabulate(find_runs([out])))
    say(f"files: {out}")
    require_training(cells)
