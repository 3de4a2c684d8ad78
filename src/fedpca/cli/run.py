"""`fedpca run`: an experiment's runs with a progress bar, then its tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedpca.api.progress import say
from fedpca.cli.results import show
from fedpca.runs.part import WHOLE, Part

if TYPE_CHECKING:
    from fedpca.cluster.options import ClusterOptions
    from fedpca.runs.cell import Cell
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
    part: Part = WHOLE,
    cluster: ClusterOptions | None = None,
) -> None:
    """Plays every run that is not finished, then shows the tables of all; of a part only if all parts are finished."""
    from fedpca.api.engine import play_runs, require_training
    from fedpca.runs.cell import cells_of_all, is_done
    from fedpca.runs.jobs import every_run
    from fedpca.runs.processes import CrashError
    from fedpca.runs.trackers import choose

    trackers = choose(log_to, out, next(iter(settings.values())).name)
    if part != WHOLE:
        say(_part_words(part, cells_of_all(settings, out)))
    cells = every_run(settings, out, resume, part)
    todo = [cell for cell in cells if not is_done(cell)]
    if finished := len(cells) - len(todo):
        say(f"{finished} of {len(cells)} runs were finished before, in {out}")
    try:
        if todo:
            play_runs(todo, jobs, workers, data_dir, trackers, cluster=cluster, out=out)
    except KeyboardInterrupt:
        say(f"stopped; {again} goes on from the last checkpoint in {out}")
        raise typer.Exit(130) from None
    except CrashError as crash:
        print(crash, end="", file=sys.stderr)
        raise typer.Exit(1) from None
    if part != WHOLE and (unfinished := sum(not is_done(cell) for cell in cells_of_all(settings, out))):
        say(f"part {part} is finished, {unfinished} of the other parts' runs are not; to look: fedpca results {out}")
    else:
        show_runs(out)
    require_training(cells)


def show_runs(out: Path) -> None:
    """Shows the tables of the runs in a folder."""
    from fedpca.results.read.runs import find_runs
    from fedpca.results.tables import tabulate

    show(tabulate(find_runs([out])))
    say(f"files: {out}")


def _part_words(part: Part, every: Sequence[Cell]) -> str:
    """What a part holds, in words."""
    own = part.of(every)
    return f"part {part}: {len(own)} of {len(every)} runs" + ("" if own else ", since there are more parts than runs")
