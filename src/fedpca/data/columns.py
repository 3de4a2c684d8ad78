"""The columns of a table: which are numbers, which are categories, and what each row holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from numpy.typing import NDArray

from fedpca.data.formats.source import Source
from fedpca.errors import DataError, require_plain

Values = NDArray[np.float64]
MISSING = frozenset({"", "?", "nan", "na", "n/a"})  # texts of a cell without a value, in any case
MAX_LEVELS = 100  # of a category: more are names, numbers of patients or free text


@dataclass(frozen=True)
class Column:
    """A column of a table; a number has no levels."""

    name: str
    levels: tuple[str, ...] = ()  # of a category, sorted


def read_columns(sources: Sequence[Source]) -> tuple[tuple[Column, ...], list[Values]]:
    """What each column is, and each source's values (N, K): numbers, or the numbers of levels; NaN where missing."""
    require_plain(sources[0].features, f"{sources[0].place}: the column")
    columns: list[Column] = []
    parts: list[list[Values]] = [[] for _ in sources]
    for name in sources[0].features:
        cells = [_cells(source, name) for source in sources]
        column, values = _read_column(name, cells, sources)
        columns.append(column)
        for part, own in zip(parts, values, strict=True):
            part.append(own)
    return tuple(columns), [np.stack(part, axis=1) for part in parts]


def _cells(source: Source, name: str) -> Sequence[object]:
    if name not in source.features:
        raise DataError(f"{source.place} has no column {name!r}, which the training part has: add it")
    return source.features[name]


def _read_column(
    name: str, cells: Sequence[Sequence[object]], sources: Sequence[Source]
) -> tuple[Column, list[Values]]:
    numbers = [_numbers(own) for own in cells]
    values = [own for own in numbers if own is not None]
    if len(values) == len(cells):
        for source, own in zip(sources, values, strict=True):
            if len(rows := np.flatnonzero(np.isinf(own))):
                raise DataError(f"{source.place}, column {name!r}, row {rows[0]}: numbers must be finite")
        return Column(name), values
    levels = tuple(sorted({str(cell) for own in cells for cell in own if not is_missing(cell)}))
    _require_few(sources[0].place, name, levels)
    codes = {level: float(code) for code, level in enumerate(levels)}
    coded = [[np.nan if is_missing(cell) else codes[str(cell)] for cell in own] for own in cells]
    return Column(name, levels), [np.array(own, dtype=np.float64) for own in coded]


def is_missing(cell: object) -> bool:
    """Whether a cell holds no value: nothing, NaN, or a text that stands for it."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or (isinstance(cell, float) and isnan(cell))


def _numbers(cells: Sequence[object]) -> Values | None:
    """The cells as numbers; None if one is a text that is none."""
    try:
        return np.array([np.nan if is_missing(cell) else float(cell) for cell in cells])  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _require_few(place: str, name: str, levels: tuple[str, ...]) -> None:
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"{place}, column {name!r}: {len(levels)} different texts, such as {levels[0]!r} and {levels[1]!r}, but a "
            f"category may have {MAX_LEVELS}: list the columns to use in data.feature_columns; "
            "where it names images, set data.image_column"
        )
