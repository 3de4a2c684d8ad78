"""One table as plain values: what stands where, whatever the format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Column:
    """What stands above a column of numbers or, without digits, of words."""

    head: str
    digits: int | None = None
    best: Literal["most", "least"] | None = None
    group: str = ""  # what it shares with its neighbours: a noise setting, or the score that is compared
    narrow: bool = True  # whether narrow terminals show it


@dataclass(frozen=True)
class Cell:
    """A number, with its deviation where it is a mean of several."""

    mean: float
    std: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Line:
    """One method, or one of its test groups; a cell without a value is None."""

    category: str
    method: str
    cells: tuple[Cell | str | None, ...]
    unfinished: bool


@dataclass(frozen=True)
class Sheet:
    """One table; without lines it is what its notes say."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    first: str = "method"  # what stands above the names of the lines


def mark_best(columns: Sequence[Column], lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with the best numbers marked: all that look the same, and none where there is nothing to compare."""
    numbers = [[cell.mean for line in lines if isinstance(cell := line.cells[i], Cell)] for i in range(len(columns))]
    best = list(map(_best, columns, numbers))

    def marked(cell: Cell | str | None, column: Column, top: float | None) -> Cell | str | None:
        return replace(cell, best=round(cell.mean, column.digits) == top) if isinstance(cell, Cell) else cell

    return tuple(replace(line, cells=tuple(map(marked, line.cells, columns, best))) for line in lines)


def _best(column: Column, values: Sequence[float]) -> float | None:
    if column.best is None or len(values) < 2:
        return None
    return round((max if column.best == "most" else min)(values), column.digits)
