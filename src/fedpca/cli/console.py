"""What a person sees while an experiment runs and when it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedpca.errors import UserError

if TYPE_CHECKING:
    from fedpca.results.read.runs import Run
    from fedpca.results.tables.rows import Results
    from fedpca.runs.cell import Cell
    from fedpca.runs.folder import RoundLine
    from fedpca.runs.run import Prepared
    from fedpca.runs.trackers import Tracker
    from fedpca.settings.experiment import Experiment

err = Console(stderr=True)


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
    """Runs every cell that is not finished, with a progress bar, then shows the table."""
    from fedpca.results.read.runs import find_runs
    from fedpca.results.tables import tabulate
    from fedpca.runs.cell import cells_of_all, check_folder, is_done
    from fedpca.runs.jobs import CrashError
    from fedpca.runs.trackers import choose

    trackers = choose(log_to, out, next(iter(settings.values())).name)
    cells = cells_of_all(settings, out)
    for cell in cells:
        check_folder(cell, resume)
    todo = [cell for cell in cells if not is_done(cell)]
    if finished := len(cells) - len(todo):
        err.print(f"{finished} of {len(cells)} runs were finished before, in {out}", markup=False)
    try:
        _play(todo, jobs, workers, data_dir, trackers)
    except KeyboardInterrupt:
        err.print(f"stopped; {again} goes on from the last checkpoint in {out}", markup=False)
        raise typer.Exit(130) from None
    except CrashError as crash:
        print(crash, end="", file=sys.stderr)
        raise typer.Exit(1) from None
    show(tabulate(find_runs([out])))
    err.print(f"files: {out}", markup=False)


def _play(
    todo: Sequence[Cell], jobs: int, workers: int | None, data_dir: Path | None, trackers: Sequence[Tracker]
) -> None:
    """Prepares the data and runs the cells, one after another or in several processes."""
    from fedpca.runs import run as engine
    from fedpca.runs.jobs import run_cells
    from fedpca.runs.trackers import tracking

    if not todo:
        return
    jobs, prepared = min(jobs, len(todo)), engine.Prepared(data_dir)
    counts = _planned(todo, jobs, workers, prepared)
    with tracking(trackers, todo, _tell) as log, _Progress(todo) as show_round:

        def watch(cell: Cell, line: RoundLine) -> None:
            show_round(cell, line)
            log(cell, line)

        if jobs > 1:
            prepared.kept.clear()  # decoded and found good; every process makes its own
            run_cells(todo, jobs, counts, data_dir, watch)
            return
        for cell in todo:
            engine.run_cell(cell, *prepared.of(cell), counts[cell.setting], watch)


def _planned(todo: Sequence[Cell], jobs: int, workers: int | None, prepared: Prepared) -> dict[str, int]:
    """The workers of each setting; says how it will be played, and finds faults of all before any is."""
    firsts = {cell.setting: cell for cell in reversed(todo)}  # the first to be played comes last: its data are kept
    plans = {setting: _plan(cell, jobs, workers, prepared) for setting, cell in firsts.items()}
    alike: dict[str, list[str]] = {}
    for setting, (_, words) in reversed(plans.items()):
        alike.setdefault(words, []).append(setting)
    for words, settings in alike.items():
        named = f"all {len(settings)} settings" if len(alike) == 1 and len(settings) > 3 else "; ".join(settings)
        _tell(f"{named}: {words}" if any(settings) else words)
    return {setting: count for setting, (count, _) in plans.items()}


def _plan(cell: Cell, jobs: int, workers: int | None, prepared: Prepared) -> tuple[int, str]:
    """The workers of one setting, and in words how it will be played; a fault names the setting."""
    from fedpca.runs import run as engine

    try:
        with _decoding() as progress:
            dataset, federation = prepared.of(cell, progress)
        count = workers or engine.default_workers(cell.settings, federation, jobs)
        how = engine.plan(cell.settings, federation, jobs, count)
    except UserError as error:
        if not cell.setting:
            raise
        raise UserError(f"setting {cell.setting!r}: {error}") from None
    skipped = f"\nskipped an unreadable image: {dataset.skipped[0]}" if dataset.skipped else ""
    more = f" (and {len(dataset.skipped) - 1} more)" if len(dataset.skipped) > 1 else ""
    return count, f"{len(federation.shards)} clients; {how}{skipped}{more}"


def show(results: Sequence[Results]) -> None:
    """Prints the results and who was found mislabeled; as wide as needed where the output is not a terminal."""
    from fedpca.results import tables

    console = Console() if sys.stdout.isatty() else Console(width=140)
    for sheet in tables.for_terminal(results):
        console.print(tables.as_rich(sheet, console.width))


def write_results(
    runs: Sequence[Run],
    results: Sequence[Results],
    *,
    html: Path | None,
    figures: Path | None,
    at: int | None,
    markdown: Path | None,
    latex: Path | None,
    csv: Path | None,
) -> None:
    """Writes what was asked for, and says of figures which could not be drawn."""
    from fedpca.results import tables
    from fedpca.results.page import write_page

    if html is not None:
        _write(html, write_page(runs))
    if figures is not None:
        from fedpca.results.figures import write_figures

        for drawn in write_figures(runs, figures, at):
            err.print(drawn.line(), markup=False, soft_wrap=True)
    if csv is not None:
        _write(csv, tables.as_csv(results))
    if markdown is not None:
        _write(markdown, tables.as_markdown(tables.for_pages(results)))
    if latex is not None:
        _write(latex, tables.as_latex(tables.for_pages(results)))


def _write(path: Path, content: str) -> None:
    from fedpca.atomic import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose another place") from None


class _Progress:
    """A bar over all rounds of all cells, with the latest round, worst and average accuracy, and time left."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[scores]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=err,
            disable=not err.is_terminal,
        )
        self.task = TaskID(0)
        self.rounds: dict[Path, int] = {}  # played so far, by run folder: runs may go on side by side
        self.scores: dict[Path, str] = {}  # when last tested
        self.warned: set[str] = set()

    def __enter__(self) -> Callable[[Cell, RoundLine], None]:
        self.bar.start()
        total = sum(cell.settings.rounds for cell in self.cells)
        self.task = self.bar.add_task("starting", total=total, scores="")
        return self.on_round

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_round(self, cell: Cell, line: RoundLine) -> None:
        """Moves the bar, and says once per run and client whose answers are left out."""
        self.rounds[cell.folder] = line["round"]
        name = f"{cell.name} round {line['round']}/{cell.settings.rounds}"
        scores = self.scores[cell.folder] = _scores(line) or self.scores.get(cell.folder, "")
        self.bar.update(self.task, completed=sum(self.rounds.values()), description=name, scores=scores)
        for client, reason in line["left_out"].items():
            if (key := f"{cell.folder} {client}") not in self.warned:
                self.warned.add(key)
                err.print(f"{name}: client {client} is left out: {reason}", markup=False)
        if len(line["left_out"]) == len(line["clients"]["id"]) and str(cell.folder) not in self.warned:
            self.warned.add(str(cell.folder))
            err.print(f"{name}: nobody's answer can be used; the model stays as it is (a smaller lr?)", markup=False)
        if not err.is_terminal and line["round"] == cell.settings.rounds:
            err.print(f"{name}: {scores}", markup=False)


def watch_runs(folder: Path, port: int) -> None:
    """Serves the page of runs under way until they end, or until Ctrl-C."""
    from fedpca.results.page.watch import serve

    try:
        serve(folder, port, _tell)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _tell(message: str) -> None:
    err.print(message, markup=False, soft_wrap=True)


def _scores(line: RoundLine) -> str:
    if not line["groups"]:
        return ""
    values = [100 * group["acc"] for group in line["groups"].values()]
    return f"worst {min(values):.1f} average {sum(values) / len(values):.1f}"


@contextmanager
def _decoding() -> Iterator[Callable[[int, int], None]]:
    """A bar that appears only if images have to be fetched or decoded, and only for people."""
    bar = Progress(TextColumn("reading images"), BarColumn(), TimeRemainingColumn(), console=err, transient=True)

    def tell(done: int, total: int) -> None:
        if not bar.tasks:
            bar.start()
            bar.add_task("read")
        bar.update(bar.tasks[0].id, completed=done, total=total)

    try:
        yield tell if err.is_terminal else lambda done, total: None
    finally:
        if bar.tasks:
            bar.stop()
