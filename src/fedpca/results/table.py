"""The headline table: worst and average over test groups, one row per method."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpca.catalogue import METHODS
from fedpca.results.runs import Run, by_scenario
from fedpca.scores import Headline, Spread, fairness_robustness, headline, spread

if TYPE_CHECKING:
    from rich.table import Table

HEADS = ("worst ACC", "average ACC", "STD", "worst AUC", "average AUC")


@dataclass(frozen=True)
class Row:
    """One method in one scenario, over its seeds."""

    method: str
    acc: Headline
    auc: Headline
    weight: float | None  # w_r (1 - w_m); None for rules without weights
    seeds: int
    unfinished: int  # runs that are still under way


@dataclass(frozen=True)
class Results:
    """All methods in one scenario."""

    title: str
    groups: tuple[str, ...]
    rows: tuple[Row, ...]


def tabulate(runs: Sequence[Run]) -> list[Results]:
    """One table per scenario, rows in the catalogue's order; all values in percent."""
    return [_results(members) for members in by_scenario(runs)]


def _results(runs: Sequence[Run]) -> Results:
    by_label: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: [*METHODS, run.method].index(run.method)):
        by_label[run.label()].append(run)
    rows = tuple(_row(label, members) for label, members in by_label.items())
    return Results(runs[0].title(), tuple(runs[0].last("acc")), rows)


def _row(method: str, runs: Sequence[Run]) -> Row:
    products = [
        fairness_robustness(shares)
        for run in runs
        if run.rounds and all(shares := [line["weights"] for line in run.rounds])
    ]
    return Row(
        method,
        _pooled(runs, "acc"),
        _pooled(runs, "auc"),
        spread(products).mean if products else None,
        seeds=len(runs),
        unfinished=sum(not run.is_done for run in runs),
    )


def _pooled(runs: Sequence[Run], metric: str) -> Headline:
    """The headline over the last rounds of every seed together."""
    pooled: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for group, values in run.last(metric).items():
            pooled[group] += [100 * value for value in values]
    return headline(pooled)


def as_rich(results: Results, width: int = 140) -> Table:
    """The table for a terminal of so many columns, best values in bold; a narrow one gets fewer figures."""
    from rich.markup import escape
    from rich.table import Table

    shown = range(5) if width >= 120 else (0, 1, 3)
    table = Table(title=escape(results.title), title_justify="left", caption=_caption(results), caption_justify="left")
    table.add_column("method", min_width=14, overflow="fold")
    for i in shown:
        table.add_column(HEADS[i], justify="right", no_wrap=True)
    for name in ("w_r(1-w_m)", "seeds") if width >= 120 else ("seeds",):
        table.add_column(name, justify="right", no_wrap=True)
    best = _best(results.rows)
    for row in results.rows:
        values = _columns(row)
        cells = [_bold(_pair(values[i]), values[i].mean == best[i]) for i in shown]
        weight = ["-" if row.weight is None else f"{row.weight:.4f}"] if width >= 120 else []
        table.add_row(escape(row.method), *cells, *weight, f"{row.seeds}" + ("*" if row.unfinished else ""))
    return table


def as_csv(tables: Sequence[Results]) -> str:
    """All tables as one CSV, full precision."""
    figures = ("worst_acc", "average_acc", "std_acc", "worst_auc", "average_auc")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [head for name in figures for head in (name, f"{name}_spread")]
    writer.writerow(["scenario", "method", *heads, "w_r_times_not_w_m", "seeds", "unfinished"])
    for results in tables:
        for row in results.rows:
            cells = [cell for value in _columns(row) for cell in (value.mean, value.std)]
            writer.writerow([results.title, row.method, *cells, row.weight, row.seeds, row.unfinished])
    return out.getvalue()


def as_json(tables: Sequence[Results]) -> list[dict[str, object]]:
    """All tables as plain data for scripts."""
    from dataclasses import asdict

    return [asdict(results) for results in tables]


def _columns(row: Row) -> tuple[Spread, ...]:
    return row.acc.worst, row.acc.average, row.acc.std, row.auc.worst, row.auc.average


def _best(rows: Sequence[Row]) -> list[float]:
    """The best of each column: the least for STD, else the most."""
    columns = list(zip(*(_columns(row) for row in rows), strict=True))
    return [(min if i == 2 else max)(value.mean for value in column) for i, column in enumerate(columns)]


def _pair(value: Spread) -> str:
    return f"{value.mean:.2f} ± {value.std:.2f}"


def _bold(text: str, yes: bool) -> str:
    return f"[bold]{text}[/bold]" if yes else text


def _caption(results: Results) -> str:
    groups = " and ".join(results.groups)
    text = f"Percent; mean ± deviation over the last rounds of every seed; test groups: {groups}."
    return text + (" * has runs that are not finished." if any(row.unfinished for row in results.rows) else "")
