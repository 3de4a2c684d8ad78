"""All methods against one: paired differences over the seeds, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedpca.errors import UserError, nearest
from fedpca.results.read.differences import OVER_GROUPS, Difference, compare
from fedpca.results.read.runs import Run, by_scenario
from fedpca.results.tables.rows import Results, names_of, score_of
from fedpca.results.tables.sheet import Cell, Column, Line, Sheet

NOTES = (
    "Percentage points; mean over the seeds that both have, in brackets its 95 % interval (Student's t over seeds).",
    "Each interval is for itself: of twenty, one is expected to miss the true difference.",
)


@dataclass(frozen=True)
class Against:
    """What the methods of one scenario gain over one of them."""

    method: str  # the row that is subtracted
    differences: Mapping[str, Mapping[str, Difference]]  # row: score, such as worst_acc: gain


def with_against(tables: Sequence[Results], runs: Sequence[Run], method: str) -> list[Results]:
    """The tables of these runs with each method's gain over this one; a scenario without the method stays as it is."""
    known = dict.fromkeys(row.method for results in tables for row in results.rows)
    if not any(method in (row.method, row.name) for results in tables for row in results.rows):
        raise UserError(f"--against {method}: none of these runs is of that method{nearest(method, known)}")
    pairs = zip(tables, by_scenario(runs), strict=True)
    return [replace(results, against=_against(results, own, method)) for results, own in pairs]


def _against(results: Results, runs: Sequence[Run], method: str) -> Against | None:
    labels = [row.method for row in results.rows if method in (row.method, row.name)]
    exact = [label for label in labels if label == method] or labels
    if len(exact) > 1:
        raise UserError(f"--against {method}: there are {', '.join(map(repr, exact))}: name one of them in full")
    if not exact:
        return None
    by_label = {row.method: [run for run in runs if run.label() == row.method] for row in results.rows}
    base = by_label.pop(exact[0])
    gains = {label: _gains(own, base, results.accuracy) for label, own in by_label.items()}
    return Against(exact[0], {label: own for label, own in gains.items() if own})


def _gains(one: Sequence[Run], other: Sequence[Run], accuracy: str) -> dict[str, Difference]:
    found = {f"{kind}_{accuracy}": compare(one, other, kind) for kind in OVER_GROUPS}
    return {name: gain for name, gain in found.items() if gain}


def against_sheet(results: Results, against: Against) -> Sheet:
    """The gains of one scenario's methods; without lines where no method shares a seed with the one."""
    names = names_of([results.accuracy], tuple(OVER_GROUPS))
    columns = (*(Column(score_of(name).head) for name in names), Column("seeds", 0))
    lines = []
    for row in results.rows:
        if gains := against.differences.get(row.method):
            cells: list[Cell | str | None] = [_words(gains[name]) for name in names]
            cells.append(Cell(gains[names[0]].seeds))
            lines.append(Line(row.category, row.method, tuple(cells), bool(row.unfinished)))
    notes = NOTES if lines else (f"No other method has a seed and a test group in common with {against.method}.",)
    alone = ["An interval needs two seeds."] if any(cell == Cell(1) for line in lines for cell in line.cells) else []
    return Sheet(f"Minus {against.method}, seed by seed; {results.title}", columns, tuple(lines), (*notes, *alone))


def _words(gain: Difference) -> str:
    interval = "" if gain.low is None else f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    return f"{gain.mean:+.2f}{interval}"
