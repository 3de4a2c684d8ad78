"""The paper's tables as plain values: what stands where, whatever the format."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedpca.results.tables.paper import ABSENT, Order, Published
from fedpca.results.tables.rows import SCORES, Results, Row, place
from fedpca.runs.scores import Spread

MAIN = ("worst_acc", "average_acc", "worst_auc", "average_auc")
DEVIATIONS = ("std_acc", "std_auc")
WEIGHTS = ("w_r_times_not_w_m",)
FOUND = ("precision", "recall", "f1", "accused_common", "accused_rare")
OVERVIEW = ("worst_acc", "average_acc", "std_acc", "worst_auc", "average_auc", "w_r_times_not_w_m")
WIDE = ("std_acc", "std_bacc", "average_auc", "w_r_times_not_w_m", "precision", "recall")  # not for narrow terminals
COMPARED = ("worst_acc", "worst_bacc", "average_acc", "w_r_times_not_w_m")  # with the paper, in narrow terminals too


@dataclass(frozen=True)
class Column:
    """What stands above a column of figures or, without digits, of words."""

    head: str
    digits: int | None = None
    best: Literal["most", "least"] | None = None
    group: str = ""  # what it shares with its neighbours: a noise setting, or the score that is compared
    narrow: bool = True  # whether narrow terminals show it


@dataclass(frozen=True)
class Cell:
    """A figure, with its deviation where it is a mean of several."""

    mean: float
    std: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Line:
    """One method; a cell without a value is None."""

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


def for_terminal(tables: Sequence[Results]) -> list[Sheet]:
    """One overview per scenario, then the paper's figures if they were asked for, then who was found mislabeled."""
    named = [results for results in tables if any(row.found for row in results.rows)]
    found = [accused(results, alone=len(tables) == 1) for results in named]
    return [*map(overview, tables), *_beside(tables), *found]


def for_pages(tables: Sequence[Results]) -> list[Sheet]:
    """The paper's tables, with scenarios that differ in nothing but their noise side by side."""
    sheets: list[Sheet] = []
    for family in families(tables):
        made = (main(family), deviations(family), weights(family), identification(family))
        sheets += [*(sheet for sheet in made if sheet.lines), *_beside(family)]
    return sheets


def families(tables: Sequence[Results]) -> list[list[Results]]:
    """Scenarios that differ in rho and eta (and name) alone, together, by rising rho; others by themselves."""
    alike: dict[str, list[Results]] = {}
    for results in tables:
        shared = json.loads(results.scenario)
        noise = {**shared["noise"], "clients": None, "labels": None}
        alike.setdefault(json.dumps({**shared, "name": None, "noise": noise}), []).append(results)
    return [family for members in alike.values() for family in _told_apart(members)]


def _told_apart(alike: list[Results]) -> list[list[Results]]:
    """All as one family if no two have the same noise, else each alone under its own title."""
    if max(Counter(map(noise_of, alike)).values()) > 1:
        return [[results] for results in alike]
    return [sorted(alike, key=lambda results: (results.settings.noise.clients, results.settings.noise.labels))]


def noise_of(results: Results) -> str:
    """Rho and eta in words."""
    noise = results.settings.noise
    return f"ρ = {round(noise.clients, 4)}, η = {round(noise.labels, 4)}"


def main(family: Sequence[Results]) -> Sheet:
    """Worst and average over the test groups."""
    names, notes = _accuracy(family[0], MAIN), (_pooling(family), "Best in bold.")
    return _side_by_side("Worst and average over the test groups", family, names, notes)


def deviations(family: Sequence[Results]) -> Sheet:
    """The deviation over the test groups; no lines where there is only one group."""
    names = _accuracy(family[0], DEVIATIONS) if len(family[0].groups) > 1 else ()
    notes = (_pooling(family), "Least in bold.")
    return _side_by_side("Deviation (STD) over the test groups", family, names, notes)


def weights(family: Sequence[Results]) -> Sheet:
    """What rare clients weigh, times what the mislabeled do not."""
    explained = "Weight of the rare clients times one less that of the mislabeled, averaged over all rounds and seeds."
    return _side_by_side("Weights, w_r(1-w_m)", family, WEIGHTS, (explained, "Most in bold."))


def identification(family: Sequence[Results]) -> Sheet:
    """How well the mislabeled were named; no lines where the truth is not known."""
    explained = "Means over the last rounds of every seed; accused common and rare: clients accused wrongly."
    return _side_by_side("Found mislabeled", family, FOUND, (explained,))


def overview(results: Results) -> Sheet:
    """The headline of one scenario, for a terminal."""
    names = _accuracy(results, OVERVIEW)
    columns = (*_columns(names), Column("seeds", 0))
    lines = [_line(row, [*_cells(row, names), Cell(row.seeds)], [row]) for row in results.rows]
    return Sheet(results.title, columns, _marked(columns, lines), (_pooling([results]), *_stars(lines)))


def accused(results: Results, alone: bool = True) -> Sheet:
    """Who was named mislabeled in one scenario, for a terminal; unless alone, it says in which."""
    known = FOUND if results.mislabeled is not None else ()
    truth = "not known" if results.mislabeled is None else ", ".join(results.mislabeled) or "nobody"
    columns = (*_columns(known), Column("clients in the last round (seeds, if not all)"))
    rows = [row for row in results.rows if row.found]
    lines = [Line("", row.method, (*_cells(row, known), _named(row)), bool(row.unfinished)) for row in rows]
    title = f"Found mislabeled (truly: {truth})" + ("" if alone else f"; {results.title}")
    return Sheet(title, columns, tuple(lines), tuple(_stars(lines)))


def beside(results: Results, published: Published) -> Sheet:
    """The paper's figures beside ours, and whether the methods come in the same order."""
    names = [name for name in SCORES if any(name in pairs for pairs in published.pairs.values())]
    columns = [
        replace(column, head=head, group=column.head, narrow=name in COMPARED)
        for name, column in zip(names, _columns(names), strict=True)
        for head in ("ours", "paper")
    ]
    lines = []
    for row in results.rows:
        if pairs := published.pairs.get(row.method):
            paper = [Cell(pairs[name].paper) if name in pairs else None for name in names]
            ours = [replace(cell, std=None) if cell else None for cell in _cells(row, names)]
            lines.append(_line(row, [cell for both in zip(ours, paper, strict=True) for cell in both], [row]))
    title = f"Beside the paper; {results.title}" + (f"; the paper: {published.setting}" if published.setting else "")
    dashes = [f"-: {ABSENT}."] if any(None in line.cells[1::2] for line in lines) else []
    notes = (*_orders(published.orders), *published.remarks, *dashes, *_stars(lines))
    return Sheet(title, tuple(columns), _marked(columns, lines), notes)


def _beside(tables: Sequence[Results]) -> list[Sheet]:
    return [beside(results, results.published) for results in tables if results.published]


def _side_by_side(what: str, family: Sequence[Results], names: Sequence[str], notes: Sequence[str]) -> Sheet:
    """These scores of every scenario of a family; a method without any is left out."""
    by_method = [{row.method: row for row in results.rows} for results in family]
    rows = sorted({label: row for own in by_method for label, row in own.items()}.values(), key=place)
    columns = [column for results in family for column in _columns(names, noise_of(results) if len(family) > 1 else "")]
    lines = []
    for row in rows:
        own = [rows_of.get(row.method) for rows_of in by_method]
        cells = [cell for each in own for cell in _cells(each, names)]
        if any(cells):
            lines.append(_line(row, cells, [each for each in own if each]))
    dashes = ["-: no runs, or not defined."] if any(None in line.cells for line in lines) else []
    notes = (*notes, *_seeds(family), *dashes, *_stars(lines))
    return Sheet(f"{what}; {_title(family)}", tuple(columns), _marked(columns, lines), notes)


def _accuracy(results: Results, names: Sequence[str]) -> tuple[str, ...]:
    """The scores with the accuracy that the settings ask for, plain or balanced."""
    return tuple(name.replace("_acc", f"_{results.settings.evaluation.accuracy}") for name in names)


def _columns(names: Sequence[str], group: str = "") -> list[Column]:
    scores = [(name, SCORES[name]) for name in names]
    return [Column(score.head, score.digits, score.best, group, name not in WIDE) for name, score in scores]


def _cells(row: Row | None, names: Sequence[str]) -> list[Cell | None]:
    values = [SCORES[name].of(row) if row else None for name in names]
    return [
        Cell(value.mean, value.std) if isinstance(value, Spread) else None if value is None else Cell(value)
        for value in values
    ]


def _line(row: Row, cells: Sequence[Cell | str | None], rows: Sequence[Row]) -> Line:
    return Line(row.category, row.method, tuple(cells), any(each.unfinished for each in rows))


def _marked(columns: Sequence[Column], lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with the best figures marked: all that look the same, and none where there is nothing to compare."""
    figures = [[cell.mean for line in lines if isinstance(cell := line.cells[i], Cell)] for i in range(len(columns))]
    best = list(map(_best, columns, figures))

    def marked(cell: Cell | str | None, column: Column, top: float | None) -> Cell | str | None:
        return replace(cell, best=round(cell.mean, column.digits) == top) if isinstance(cell, Cell) else cell

    return tuple(replace(line, cells=tuple(map(marked, line.cells, columns, best))) for line in lines)


def _best(column: Column, values: Sequence[float]) -> float | None:
    if column.best is None or len(values) < 2:
        return None
    return round((max if column.best == "most" else min)(values), column.digits)


def _named(row: Row) -> str:
    """The accused clients, those of some seeds only with their number."""
    if row.found is None or not row.found.accused:
        return "nobody"
    accused = sorted(row.found.accused.items(), key=lambda item: (len(item[0]), item[0]))
    return ", ".join(client if n == row.found.seeds else f"{client} ({n})" for client, n in accused)


def _title(family: Sequence[Results]) -> str:
    """The scenario's title; what the members of a family share, where there are several."""
    if len(family) == 1:
        return family[0].title
    first = family[0]
    rare = f", {first.rare} rare" if first.rare else ""
    held_out = ", on validation images" if first.settings.evaluation.on == "validation" else ""
    return f"{first.dataset}, {first.clients} clients{rare}, {first.settings.rounds} rounds{held_out}"


def _pooling(family: Sequence[Results]) -> str:
    groups, last = " and ".join(family[0].groups), family[0].settings.evaluation.last_rounds
    rounds = f"last {last} tested rounds" if last > 1 else "last round"
    return f"Percent; mean ± deviation over the {rounds} of every seed; test groups: {groups}."


def _seeds(family: Sequence[Results]) -> Iterator[str]:
    seeds = {row.seeds for results in family for row in results.rows}
    if seeds:
        many = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{max(seeds)}"
        yield f"{many} seed{'s' * (max(seeds) > 1)}."


def _stars(lines: Sequence[Line]) -> Iterator[str]:
    if any(line.unfinished for line in lines):
        yield "* has runs that are not finished."


def _orders(orders: Sequence[Order]) -> Iterator[str]:
    """How far the order of methods agrees, score by score."""
    told = [f"{SCORES[o.score].head} {o.tau:.2f} ({o.methods} methods)" for o in orders if o.tau is not None]
    if told:
        yield f"Order of the methods, Kendall's tau-b (1: as in the paper, -1: reversed): {', '.join(told)}."
    few = [f"{SCORES[o.score].head} ({o.methods})" for o in orders if o.methods < 3]
    if few:
        yield f"Fewer than 3 methods in both, so no order to compare: {', '.join(few)}."
    flat = [SCORES[o.score].head for o in orders if o.tau is None and o.methods >= 3]
    if flat:
        yield f"All methods the same on one side, so no order to compare: {', '.join(flat)}."
