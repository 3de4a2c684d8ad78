"""What a person sees on the error stream while something goes on: messages and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from fedpca.runs.cell import Cell, Watch
    from fedpca.runs.folder import RoundLine

err = Console(stderr=True)


def say(message: str) -> None:
    """Prints a message for people, as it is; a notebook breaks the lines of plain text alone."""
    if err.is_jupyter:
        print(message)
    else:
        err.print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def counting_bar(words: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar over so many of so many things, such as images read; it appears with the first one, and only for people."""
    columns = (TextColumn(words), BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn())
    bar = Progress(*columns, console=err, transient=True)

    def update(done: int, total: int) -> None:
        if not bar.tasks:
            bar.start()
            bar.add_task(words)
        bar.update(bar.tasks[0].id, completed=done, total=total)

    try:
        yield update if err.is_terminal and not quiet else lambda done, total: None
    finally:
        if bar.tasks:
            bar.stop()


@contextmanager
def watching(cells: Sequence[Cell], progress: bool) -> Iterator[Watch]:
    """What shows each round as it is played: a bar in a terminal, a line in a notebook, nothing if not asked for."""
    if not progress:
        yield lambda cell, line: None
    elif err.is_jupyter:
        yield NotebookLine(cells).on_round
    else:
        with RoundsBar(cells) as watch:
            yield watch


class NotebookLine:
    """One line of a notebook's output, replaced after every round; needs no widgets."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        from IPython.display import HTML, display

        self.total = sum(cell.settings.rounds for cell in cells)
        self.rounds: dict[Path, int] = {}  # played so far, by run folder
        self.warnings = Warnings()
        self.html = HTML
        self.shown = display(HTML("starting"), display_id=True)

    def on_round(self, cell: Cell, line: RoundLine) -> None:
        """Shows how many rounds are played, and the scores of the latest."""
        self.rounds[cell.folder] = line["round"]
        done = sum(self.rounds.values())
        name = escape(f"{cell.name} round {line['round']}/{cell.settings.rounds} {scores_of(cell, line)}")
        self.shown.update(self.html(f'<progress value="{done}" max="{self.total}"></progress> {name}'))
        self.warnings.give(cell, line)


class RoundsBar:
    """A bar over all rounds of all runs, with the latest round, worst and average accuracy, and time left."""

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
        self.warnings = Warnings()

    def __enter__(self) -> Callable[[Cell, RoundLine], None]:
        self.bar.start()
        total = sum(cell.settings.rounds for cell in self.cells)
        self.task = self.bar.add_task("starting", total=total, scores="")
        return self.on_round

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_round(self, cell: Cell, line: RoundLine) -> None:
        """Moves the bar, and says what went wrong in the round."""
        self.rounds[cell.folder] = line["round"]
        name = f"{cell.name} round {line['round']}/{cell.settings.rounds}"
        scores = self.scores[cell.folder] = scores_of(cell, line) or self.scores.get(cell.folder, "")
        self.bar.update(self.task, completed=sum(self.rounds.values()), description=name, scores=scores)
        self.warnings.give(cell, line)
        if not err.is_terminal and line["round"] == cell.settings.rounds:
            err.print(f"{name}: {scores}", markup=False)


class Warnings:
    """What went wrong in rounds, said once per run and client."""

    def __init__(self) -> None:
        self.given: set[tuple[Path, str]] = set()

    def give(self, cell: Cell, line: RoundLine) -> None:
        """Says whose answers are left out, and that nobody's can be used."""
        from fedpca.runs.cell import nobody_counts

        name = f"{cell.name} round {line['round']}/{cell.settings.rounds}"
        for client, reason in line["left_out"].items():
            self._once(cell, client, f"{name}: client {client} is left out: {reason}")
        if nobody_counts(cell.settings, line):
            self._once(cell, "", f"{name}: nobody's answer can be used; the model stays as it is (a smaller lr?)")

    def _once(self, cell: Cell, client: str, message: str) -> None:
        if (cell.folder, client) not in self.given:
            self.given.add((cell.folder, client))
            say(message)


def scores_of(cell: Cell, line: RoundLine) -> str:
    """Worst and average of the accuracy that the settings chose; nothing if the round is not tested."""
    from fedpca.runs.metrics import METRICS

    if not line["groups"]:
        return ""
    accuracy = cell.settings.evaluation.accuracy
    values = [100 * group[accuracy] for group in line["groups"].values()]
    return f"{METRICS[accuracy].head} worst {min(values):.1f} average {sum(values) / len(values):.1f}"
