"""Runs that are played, shown and logged, for the command line and for `fedpca.run` alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedpca.api.progress import counting_bar, say, watching
from fedpca.cluster.connect import Link, connected
from fedpca.cluster.grid import Grid
from fedpca.cluster.options import ClusterOptions
from fedpca.cluster.spread import spread_over
from fedpca.errors import FailedError
from fedpca.runs.cell import Cell, Watch, nobody_counts
from fedpca.runs.folder import RoundLine, read_rounds
from fedpca.runs.jobs import play_all, schedule
from fedpca.runs.replan import going_on
from fedpca.runs.run import in_process
from fedpca.runs.trackers.base import Tracker
from fedpca.runs.trackers.logs import tracking


def play_runs(
    todo: Sequence[Cell],
    jobs: int,
    workers: int | None,
    data_dir: Path | None,
    trackers: Sequence[Tracker],
    progress: bool = True,
    cluster: ClusterOptions | None = None,
    out: Path | None = None,
) -> None:
    """Plays the runs, shown by a bar and logged by the trackers; on a cluster whose folder for all runs is `out`."""
    if cluster is None:
        _play_here(todo, jobs, workers, data_dir, trackers, progress)
        return
    with connected(cluster, out or Path(), say) as link:
        if cluster.spread:
            _play_here(todo, 1, workers, data_dir, trackers, progress, link)
            return
        grid = Grid(link, workers, data_dir)
        _say_all(grid.look(todo), going_on(todo), progress)
        with _shown_and_logged(todo, trackers, progress) as watch:
            grid.play(todo, watch)


def _play_here(
    todo: Sequence[Cell],
    jobs: int,
    workers: int | None,
    data_dir: Path | None,
    trackers: Sequence[Tracker],
    progress: bool,
    link: Link | None = None,
) -> None:
    """Plays the runs from this machine, whose processes have the clients, or the workers of a cluster."""
    with counting_bar("reading images", quiet=not progress) as count:
        scheduled = schedule(todo, jobs, workers, data_dir, count)
    _say_all([*([link.words] if link else []), *scheduled.words], going_on(todo), progress)
    with _shown_and_logged(todo, trackers, progress) as watch:
        play_all(scheduled, watch, spread_over(link, data_dir) if link else in_process)


def _say_all(words: Iterable[str], changes: Iterable[str], progress: bool) -> None:
    """Says how runs are played, where progress is shown, and how they differ from what one might think, in any case."""
    for line in (*(words if progress else ()), *changes):
        say(line)


@contextmanager
def _shown_and_logged(todo: Sequence[Cell], trackers: Sequence[Tracker], progress: bool) -> Iterator[Watch]:
    """What is to be called after each round."""
    with tracking(trackers, todo, say) as log, watching(todo, progress) as show_round:

        def watch(cell: Cell, line: RoundLine) -> None:
            show_round(cell, line)
            log(cell, line)

        yield watch


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
