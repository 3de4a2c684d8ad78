"""What `fedpca results` and `fedpca watch` print, write and serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from fedpca.api.progress import say
from fedpca.errors import UserError

if TYPE_CHECKING:
    from fedpca.results.read.runs import Run
    from fedpca.results.tables.rows import Results


def show(results: Sequence[Results]) -> None:
    """Prints the results and who was judged mislabeled; as wide as needed where the output is not a terminal."""
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
    clients: Path | None = None,
    groups: Path | None = None,
) -> None:
    """Writes what was asked for, and says of figures which could not be drawn."""
    from fedpca.results import tables
    from fedpca.results.page import write_page

    if html is not None:
        _write(html, write_page(runs))
    if figures is not None:
        from fedpca.results.figures import write_figures

        for drawn in write_figures(runs, figures, at):
            say(drawn.line())
    if csv is not None:
        _write(csv, tables.as_csv(results))
    if clients is not None:
        _write(clients, tables.clients_as_csv(runs))
    if groups is not None:
        _write(groups, tables.groups_as_csv(results))
    if markdown is not None:
        _write(markdown, tables.as_markdown(tables.for_pages(results)))
    if latex is not None:
        _write(latex, tables.as_latex(tables.for_pages(results)))


def show_claims(folders: Sequence[Path], markdown: Path | None, csv: Path | None) -> None:
    """Prints which of the paper's claims hold in these runs, and writes the files that were asked for."""
    from fedpca.results import claims, tables
    from fedpca.results.read.runs import find_runs

    checked = claims.check_claims(find_runs(folders))
    sheet = claims.claims_sheet(checked)
    if markdown is not None:
        _write(markdown, tables.as_markdown([sheet]))
    if csv is not None:
        _write(csv, claims.as_csv(checked))
    console = Console() if sys.stdout.isatty() else Console(width=140)
    console.print(tables.as_rich(sheet, console.width))


def _write(path: Path, content: str) -> None:
    from fedpca.atomic import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose another place") from None


def watch_runs(folder: Path, port: int) -> None:
    """Serves the page of runs until they end, or until Ctrl-C if they were finished before."""
    from fedpca.results.page.watch import serve

    try:
        serve(folder, port, say)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
