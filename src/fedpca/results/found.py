"""Who was found to be mislabeled, and how that compares with the truth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedpca.results.runs import Run, by_scenario

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Found:
    """One method's accusations over its seeds; the means are over the last rounds."""

    method: str
    f1: float
    accused_common: float  # clients that are neither rare nor mislabeled
    accused_rare: float
    accused: dict[str, int]  # client: in how many seeds' last round
    seeds: int


@dataclass(frozen=True)
class Identification:
    """All methods that name groups, in one scenario."""

    title: str
    mislabeled: tuple[str, ...]  # the truth
    rows: tuple[Found, ...]


def identifications(runs: Sequence[Run]) -> list[Identification]:
    """One per scenario in which some method names groups."""
    tables = []
    for members in by_scenario(runs):
        by_method: dict[str, list[Run]] = defaultdict(list)
        for run in members:
            if run.rounds[-1].get("identification"):
                by_method[run.label()].append(run)
        rows = tuple(_found(method, own) for method, own in by_method.items())
        if rows:
            tables.append(Identification(members[0].title(), tuple(members[0].about["mislabeled"]), rows))
    return tables


def _found(method: str, runs: Sequence[Run]) -> Found:
    last: list[dict[str, Any]] = [
        line["identification"] for run in runs for line in run.rounds[-run.settings.evaluation.last_rounds :]
    ]
    accused: Counter[str] = Counter()
    for run in runs:
        clients = run.rounds[-1]["clients"]
        accused.update(c for c, g in zip(clients["id"], clients["group"], strict=True) if g == "mislabeled")
    means = {key: fmean(found[key] for found in last if found) for key in ("f1", "accused_common", "accused_rare")}
    return Found(method, **means, accused=dict(accused), seeds=len(runs))


def as_rich(found: Identification) -> Table:
    """The table for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    truth = escape(", ".join(found.mislabeled) or "nobody")
    table = Table(title=f"Found mislabeled (truly: {truth})", title_justify="left")
    table.add_column("method", min_width=14, overflow="fold")
    for name in ("F1", "wrongly common", "rare"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("clients in the last round (seeds, if not all)")
    for row in found.rows:
        accused = sorted(row.accused.items(), key=lambda item: (len(item[0]), item[0]))
        names = escape(", ".join(c if n == row.seeds else f"{c} ({n})" for c, n in accused) or "nobody")
        table.add_row(
            escape(row.method), f"{row.f1:.2f}", f"{row.accused_common:.1f}", f"{row.accused_rare:.1f}", names
        )
    return table
