"""What `fedpca.run` gives: runs as values, with their tables, page and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from fedpca.api.notebook import runs_html, shown_in_notebooks
from fedpca.atomic import write_whole
from fedpca.results.page import write_page
from fedpca.results.read.runs import Run
from fedpca.results.tables import as_csv, tabulate

if TYPE_CHECKING:
    from fedpca.results.tables.rows import Results as Table


@dataclass(frozen=True)
class Results:
    """Runs of one or more scenarios."""

    folder: Path
    runs: Sequence[Run]

    @cached_property
    def tables(self) -> list[Table]:
        """A table for each scenario, a row for each method."""
        return tabulate(self.runs)

    @cached_property
    def table(self) -> pa.Table:
        """All numbers of all tables, as `fedpca results --csv` writes them."""
        from pyarrow import csv

        return shown_in_notebooks(csv.read_csv(BytesIO(as_csv(self.tables).encode())))

    def page(self, path: str | Path) -> Path:
        """Writes the page of these runs to an HTML file."""
        write_whole(Path(path), write_page(self.runs))
        return Path(path)

    def __repr__(self) -> str:
        return f"<{len(self.runs)} runs in {self.folder}>"

    def _repr_html_(self) -> str:
        return runs_html(self.runs)
