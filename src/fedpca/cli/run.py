"""`fedpca run`: an experiment's runs with a progress bar, then its tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedpca.api.progress import RoundsBar, counting_bar, say
from fedpca.cli.results import show
from fedpca.errors import FailedError

if TYPE_CHECKING:
    from fedpca.runs.cell import Cell
    from fedpca.runs.folder import RoundLine
    from fedpca.runs.trackers.base import Tracker
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
            _play(todo, jobs, workers, data_dir, trackers)
    except KeyboardInterrupt:
        say(f"stopped; {again} goes on from the last checkpoint in {out}")
        raise typer.Exit(130) from None
    except CrashError as crash:
        print(crash, end="", file=sys.stderr)
        raise typer.Exit(1) from None
    show(tabulate(find_runs([out])))
    say(f"files: {out}")
    _require_training(cells)


def _require_training(cells: Sequence[Cell]) -> None:
    """Fails where no client's answer could be used in any round of a run: its model is the one that it began with."""
    from fedpca.runs.cell import nobody_counts
    from fedpca.runs.folder import read_rounds

    for cell in cells:
        lines = read_rounds(cell.folder)
        if lines and all(nobody_counts(cell.settings, line) for line in lines):
            client, reason = next(iter(lines[0]["left_out"].items()))
            raise FailedError(
                f"{cell.name} trained nothing: all clients were left out in every round, so its model is the one it "
                f"began with (client {client}: {reason}); a smaller training.lr or other data may help"
            )


def _play(
    todo: Sequence[Cell], jobs: int, workers: int | None, data_dir: Path | None, trackers: Sequence[Tracker]
) -> None:
    """Plays the runs, shown by a bar and logged by the trackers."""
    from fedpca.runs.jobs import play_all, schedule
    from fedpca.runs.trackers.logs import tracking

    with counting_bar("reading images") as progress:
        scheduled = schedule(todo, jobs, workers, data_dir, progress)
    for line in scheduled.words:
        say(line)
    with tracking(trackers, todo, say) as log, RoundsBar(todo) as show_round:

        def watch(cell: Cell, line: RoundLine) -> None:
            show_round(cell, line)
            log(cell, line)

        play_all(scheduled, watch)
