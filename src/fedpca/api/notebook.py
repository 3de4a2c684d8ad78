"""Runs as HTML for a notebook: tables, and the plane where matplotlib can draw it."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

from PIL import Image

from fedpca.results.figures.shared.write import has_matplotlib, render
from fedpca.results.read.runs import Run, by_scenario
from fedpca.results.tables import as_html, for_terminal, tabulate
from fedpca.results.tables.formats import html_row

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ENDS = 10  # rows at either end of a long table
SCREEN_DPI = 128  # pixels to an inch of a figure: its letters of 7 points are then as high as those of tables
OWN = "fedpca"  # in the metadata of tables that notebooks show as HTML


def runs_html(runs: Sequence[Run]) -> str:
    """The tables of these runs, and the plane of each scenario."""
    return as_html(for_terminal(tabulate(runs))) + "".join(map(_plane, by_scenario(runs)))


def table_html(table: pa.Table) -> str:
    """A table; of many rows the first and the last."""
    rows = table.to_pylist()
    words = [any(isinstance(row[name], str | list) for row in rows) for name in table.column_names]
    cut = len(rows) - 2 * MAX_ENDS if len(rows) > 2 * MAX_ENDS + 1 else 0
    lines = [html_row(map(_cell, row.values()), words) for row in rows]
    if cut:
        more = f'<tr><td colspan="{len(words)}" style="text-align: left">… {cut} more rows</td></tr>'
        lines[MAX_ENDS : MAX_ENDS + cut] = [more]
    heads = html_row(map(escape, table.column_names), words, "th")
    return f"<table><thead>{heads}</thead><tbody>{''.join(lines)}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, list):
        return escape(", ".join(map(str, value)))
    return escape("–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value))


def shown_in_notebooks(table: pa.Table) -> pa.Table:
    """The same table, marked as one that a notebook shows as a table; pyarrow alone prints its columns as text."""
    ipython = sys.modules.get("IPython")  # who has a notebook has imported it
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(type(table), _own_html)
    return table.replace_schema_metadata({OWN: "table"})


def _own_html(table: pa.Table) -> str | None:
    """The HTML of tables of this package; None for others, whose display is not ours to change."""
    return table_html(table) if OWN.encode() in (table.schema.metadata or {}) else None


def _plane(runs: Sequence[Run]) -> str:
    """The loss-dispersion plane in its last round, as an image; nothing without matplotlib or dispersions."""
    if not has_matplotlib():
        return ""
    from fedpca.results.figures.plane import draw_plane

    figure = draw_plane(runs)
    return _image(render(figure, "png")) if figure else ""


def _image(png: bytes) -> str:
    """The figure as large as its letters need, not with a pixel of the screen for each of its own."""
    from fedpca.results.figures.shared.style import RC

    with Image.open(BytesIO(png)) as image:
        width = round(image.width * SCREEN_DPI / float(RC["savefig.dpi"]))
    source = f"data:image/png;base64,{b64encode(png).decode()}"
    return f'<img alt="loss and dispersion" width="{width}" style="max-width: 100%" src="{source}">'
