"""What a site tells about its table of numbers when it joins: of each column its name, its kind, and sums.

What arrives is checked: sums that no values can have are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedpca.errors import DataError

if TYPE_CHECKING:  # each answer is a new process: a site with images does not load what tables need
    from fedpca.data.columns import Column, Values
    from fedpca.data.standardise import ColumnSums

MAX_COLUMNS = 10_000
MAX_NAME = 200  # characters of the name of a column or a level
MAX_SUM = 1e300  # so that the sums of all sites together are numbers too
SLACK = 1e-6  # share by which rounding may spoil what holds between sums
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

Name = Annotated[str, Field(max_length=MAX_NAME)]
Kind = Literal["number", "category", "empty"]  # empty: there is no value to train on, so that it fits either


class ColumnTotals(BaseModel):
    """Sums over the rows that a site trains on; of a category the levels that occur in place of sums."""

    model_config = STRICT
    count: Annotated[int, Field(ge=0, le=2**53)]  # of values that are there
    sum: Annotated[float, Field(ge=-MAX_SUM, le=MAX_SUM)]
    squares: Annotated[float, Field(ge=0, le=MAX_SUM)]
    levels: list[Name]

    @model_validator(mode="after")
    def _can_be_sums(self) -> ColumnTotals:
        if self.levels:
            self._check_levels()
        elif abs(self.sum) > sqrt(self.count) * sqrt(self.squares) * (1 + SLACK):
            of = f"{self.count} values whose squares sum to {self.squares:g}"
            raise ValueError(f"{of} cannot sum to {self.sum:g}")
        elif self.squares and not self.count:
            raise ValueError(f"no values cannot have squares that sum to {self.squares:g}")
        return self

    def _check_levels(self) -> None:
        from fedpca.data.columns import MAX_LEVELS

        if self.sum or self.squares:
            raise ValueError("a category has levels and no sums")
        if len(set(self.levels)) < len(self.levels) or len(self.levels) > min(self.count, MAX_LEVELS):
            most = f"{MAX_LEVELS} different levels, and one for each of its {self.count} values"
            raise ValueError(f"a category has at most {most}, got {len(self.levels)}")


class ColumnHead(BaseModel):
    """What a site tells about one column."""

    model_config = STRICT
    name: Name
    kind: Kind
    totals: ColumnTotals | None = None  # told only before the first round, and only by sites that tell sums

    @model_validator(mode="after")
    def _kind_is_that_of_the_totals(self) -> ColumnHead:
        if self.totals and self.kind != (found := kind_of(bool(self.totals.levels), self.totals.count)):
            raise ValueError(f"its sums are those of kind {found!r}, but it says {self.kind!r}")
        return self


def kind_of(is_category: bool, count: int) -> Kind:
    """The kind of a column of which so many values are there."""
    return "empty" if count == 0 else "category" if is_category else "number"


def tell_columns(columns: Sequence[Column], values: Values, with_sums: bool, place: object) -> list[ColumnHead]:
    """What a site tells about its own rows to train on (n, K)."""
    from fedpca.data.standardise import sums_of

    heads: list[ColumnHead] = []
    with np.errstate(over="ignore"):  # what is too large is refused below, by name
        sums = sums_of(values, columns)
    for column, totals in zip(columns, _totals(sums), strict=True):
        kind = kind_of(bool(column.levels), totals["count"])
        told = {"name": column.name, "kind": kind, "totals": totals if with_sums else None}
        try:
            heads.append(ColumnHead.model_validate(told))
        except ValidationError as error:
            why = f"{error.errors()[0]['msg']}, got {error.errors()[0]['input']!r:.80}"
            remedy = "correct it, or list the columns to use in data.feature_columns"
            raise DataError(f"{place}, column {column.name!r:.80} cannot be told to others: {why}: {remedy}") from None
    return heads


def _totals(sums: ColumnSums) -> Iterator[dict[str, Any]]:
    """The same sums, column by column."""
    for count, sum, squares, levels in zip(sums.counts, sums.sums, sums.squares, sums.levels, strict=True):
        yield {"count": int(count), "sum": float(sum), "squares": float(squares), "levels": sorted(levels)}
