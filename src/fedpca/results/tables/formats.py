"""Tables for a terminal and a notebook, in Markdown and in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from fedpca.results.tables.sheet import Cell, Column, Line, Sheet

if TYPE_CHECKING:
    from rich.console import Group

WIDE_TERMINAL = 120  # columns from which on a terminal shows every number
TEX = {
    "w_r(1-w_m)": "$w_r(1-w_m)$",
    "--": "-{}-",
    "tau-b": r"$\tau_b$",
    "ρ": r"$\rho$",
    "η": r"$\eta$",
    "±": r"$\pm$",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
TEX_HEAD = "% needs \\usepackage{booktabs,graphicx}\n"


def as_rich(sheet: Sheet, width: int = 140) -> Group:
    """The table for a terminal of so many columns, best numbers in bold; a narrow one gets fewer of them."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    title, notes = Text(sheet.title, "italic"), [Text(note, "dim") for note in sheet.notes]
    if not sheet.lines:
        return Group(title, *notes)
    table = Table()
    shown = [i for i, column in enumerate(sheet.columns) if column.narrow or width >= WIDE_TERMINAL]
    table.add_column(sheet.first, min_width=14, overflow="fold")
    for column in (sheet.columns[i] for i in shown):
        words = column.digits is None
        breaks = not words and (column.group or width < WIDE_TERMINAL)
        head = f"{column.group} {column.head}".strip().replace(" ", "\n" if breaks else " ")
        table.add_column(head, justify="left" if words else "right", no_wrap=not words)
    for category, lines in groupby(sheet.lines, key=lambda line: line.category):
        if category:
            table.add_section()
            table.add_row(f"[dim]{escape(category)}[/dim]")
        for line in lines:
            cells = _cells(line, sheet.columns, escape, "[bold]", "[/bold]")
            table.add_row(escape(line.method) + " *" * line.unfinished, *(cells[i] for i in shown))
    return Group(title, table, *notes)


def as_markdown(sheets: Sequence[Sheet]) -> str:
    """All tables in GitHub's Markdown, best numbers in bold."""
    return "\n".join(block for sheet in sheets for block in _markdown(sheet))


def _markdown(sheet: Sheet) -> Iterator[str]:
    yield f"### {_escape(sheet.title)}\n"
    if sheet.lines:
        yield _pipes(["", sheet.first, *(_escape(f"{c.group}\n{c.head}".strip()) for c in sheet.columns)])
        yield _pipes(["---", "---", *("---" if column.digits is None else "---:" for column in sheet.columns)])
        for line, category in _with_headings(sheet.lines):
            cells = _cells(line, sheet.columns, _escape, "**", "**")
            yield _pipes([category, _code(line.method) + r" \*" * line.unfinished, *cells])
        yield ""
    yield _escape(" ".join(sheet.notes)) + "\n"


def as_html(sheets: Sequence[Sheet]) -> str:
    """All tables as HTML for a notebook, best numbers in bold."""
    return "".join(block for sheet in sheets for block in _html(sheet))


def _html(sheet: Sheet) -> Iterator[str]:
    yield f"<p><b>{escape(sheet.title)}</b></p>"
    if sheet.lines:
        heads = [sheet.first, *(f"{column.group} {column.head}".strip() for column in sheet.columns)]
        words = [True, *(column.digits is None for column in sheet.columns)]
        several = len({line.category for line in sheet.lines}) > 1
        yield f"<table><thead>{html_row(map(escape, heads), words, 'th')}</thead><tbody>"
        for line, category in _with_headings(sheet.lines):
            if category and several:
                yield f'<tr><th colspan="{len(heads)}" style="text-align: left">{escape(category)}</th></tr>'
            name = escape(line.method) + " *" * line.unfinished
            yield html_row([name, *_cells(line, sheet.columns, escape, "<b>", "</b>")], words)
        yield "</tbody></table>"
    yield f"<p>{escape(' '.join(sheet.notes))}</p>"


def html_row(cells: Iterable[str], words: Sequence[bool], tag: str = "td") -> str:
    """A row of cells that are HTML already; notebooks put all to the right, where only numbers belong."""
    left = ' style="text-align: left"'
    row = (f"<{tag}{left * is_word}>{cell}</{tag}>" for cell, is_word in zip(cells, words, strict=True))
    return f"<tr>{''.join(row)}</tr>"


def as_latex(sheets: Sequence[Sheet]) -> str:
    """All tables as LaTeX to be \\input, best numbers in bold; wider than the text they shrink to its width."""
    return TEX_HEAD + "\n".join(
        block for sheet in sheets for block in (_latex(sheet) if sheet.lines else _paragraph(sheet))
    )


def _latex(sheet: Sheet) -> Iterator[str]:
    align = "".join("l" if column.digits is None else "r" for column in sheet.columns)
    yield "\\begin{table}[htbp]\n\\centering\n\\setlength{\\tabcolsep}{3pt}"
    yield f"\\caption{{{_tex(sheet.title)}}}\\smallskip"
    yield "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
    yield f"\\begin{{tabular}}{{ll{align}}}\n\\toprule"
    yield from _tex_groups(sheet.columns)
    yield _tex_row(["", sheet.first, *(_tex(column.head) for column in sheet.columns)])
    for line, category in _with_headings(sheet.lines):
        if category:
            yield "\\midrule"
        cells = _cells(line, sheet.columns, _tex, "\\textbf{", "}")
        yield _tex_row([_tex(category), _tex(line.method) + "$^*$" * line.unfinished, *cells])
    yield "\\bottomrule\n\\end{tabular}}"
    yield "\\par\\smallskip"
    yield f"\\begin{{minipage}}{{\\linewidth}}\\footnotesize {_tex(' '.join(sheet.notes))}\\end{{minipage}}"
    yield "\\end{table}\n"


def _paragraph(sheet: Sheet) -> Iterator[str]:
    yield f"\\noindent\\textbf{{{_tex(sheet.title)}.}} {_tex(' '.join(sheet.notes))}\\par\n"


def _tex_groups(columns: Sequence[Column]) -> Iterator[str]:
    """The row above the heads that says what neighbours share, with a rule under each group."""
    if not any(column.group for column in columns):
        return
    cells, rules, at = ["", ""], [], 3
    for group, members in groupby(columns, key=lambda column: column.group):
        span = len(list(members))
        cells.append(f"\\multicolumn{{{span}}}{{c}}{{{_tex(group)}}}")
        rules.append(f"\\cmidrule(lr){{{at}-{at + span - 1}}}")
        at += span
    yield _tex_row(cells)
    yield " ".join(rules)


def _with_headings(lines: Sequence[Line]) -> Iterator[tuple[Line, str]]:
    """Each line, the first of a category with its heading."""
    before = ""
    for line in lines:
        yield line, line.category if line.category != before else ""
        before = line.category


def _cells(line: Line, columns: Sequence[Column], escape: Callable[[str], str], bold: str, end: str) -> list[str]:
    """A line's numbers as text, the best between `bold` and `end`."""
    texts = [escape(_text(cell, column)) for cell, column in zip(line.cells, columns, strict=True)]
    best = [isinstance(cell, Cell) and cell.best for cell in line.cells]
    return [f"{bold}{text}{end}" if is_best else text for text, is_best in zip(texts, best, strict=True)]


def _text(cell: Cell | str | None, column: Column) -> str:
    if not isinstance(cell, Cell):
        return cell or "-"
    mean = f"{cell.mean:.{column.digits}f}"
    return mean if cell.std is None else f"{mean} ± {cell.std:.{column.digits}f}"


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text of which Markdown makes nothing else; a new line only inside a table's cell."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text).replace("\n", "<br>")


def _code(text: str) -> str:
    """Text in backticks, more of them than stand inside it."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


def _tex(text: str) -> str:
    """Text with what LaTeX would read as commands spelled out."""
    return re.sub("|".join(map(re.escape, TEX)), lambda found: TEX[found[0]], text)


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"
