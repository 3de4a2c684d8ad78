"""Runs as HTML for a notebook: tables, and the plane where matplotlib can draw it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fedpca.results.figures.shared.write import has_matplotlib, render
from fedpca.results.read.runs import Run, by_scenario
from fedpca.results.tables import as_html, for_terminal, tabulate

if TYPE_CHECKING:
    import pyarrow as pa


def runs_html(runs: Sequence[Run]) -> str:
    """The tables of these runs, and the plane of each scenario."""
    return as_html(for_terminal(tabulate(runs))) + "".join(map(_plane, by_scenario(runs)))


def table_html(table: pa.Table) -> str:
    """A small table."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    rows = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in table.to_pylist())
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: object) -> str:
    text = "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return f"<td>{escape(text)}</td>"


def _plane(runs: Sequence[Run]) -> str:
    """The loss-dispersion plane in its last round, as an image; nothing without matplotlib or dispersions."""
    if not has_matplotlib():
        return ""
    from fedpca.results.figures.plane import draw_plane

    figure = draw_plane(runs)
    if figure is None:
        return ""
    return f'<img alt="loss and dispersion" src="data:image/png;base64,{b64encode(render(figure, "png")).decode()}">'
