"""Runs that are played, shown and logged, for the command line and for `fedpca.run` alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedpca.api.progress import counting_bar, say, watching
from fedpca.errors import FailedError
from fedpca.runs.cell import Cell, nobody_counts
from fedpca.runs.folder import RoundLine, read_rounds
from fedpca.runs.jobs import play_all, schedule
from fedpca.runs.replan import going_on
from fedpca.runs.trackers.base import Tracker
from fedpca.runs.trackers.logs import tracking


def play_runs(
    todo: Sequence[Cell],
    jobs: int,
    workers: int | None,
    data_dir: Path | None,
    trackers: Sequence[Tracker],
    progress: bool = True,
) -> None:
    """Plays the runs, shown by a bar and logged by the trackers."""
    with counting_bar("reading images", quiet=not progress) as count:
        scheduled = schedule(todo, jobs, workers, data_dir, count)
    for line in scheduled.words if progress else ():
        say(line)
    for line in going_on(todo):
        say(line)
    with tracking(trackers, todo, say) as log, watching(todo, progress) as show_round:

        def watch(cell: Cell, line: RoundLine) -> None:
            show_round(cell, line)
            log(cell, line)

        play_all(scheduled, watch)


def require_training(cells: Sequence[Cell]) -> None:
    """Fails where no client's answer could be used in any round of a run: its model is the one that it began with."""
    for cell in cells:
        lines = read_rounds(cell.folder)
        if lines and all(nobody_counts(cell.settings, line) for line in lines):
            client, reason = next(iter(lines[0]["left_out"].items()))
            raise FailedError(
                f"{cell.name} trained nothing: all clients were left out in every round, so its model is the one it "
                f"began with (client {client}: {reason}); a smaller training.lr or other data may help"
            )
