"""What each table shows: overviews for a terminal, the paper's tables for pages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from fedpca.results.tables.against import against_sheet
from fedpca.results.tables.attacks import attack_groups, attack_lines, attack_pages
from fedpca.results.tables.groups import MAX_LINES, group_sheets, listed_groups
from fedpca.results.tables.paper import Order, Pair, PaperNumbers
from fedpca.results.tables.rows import WEIGHT, Results, Row, common_title, names_of, place, score_of
from fedpca.results.tables.sheet import Cell, Column, Line, Sheet, mark_best
from fedpca.runs.metrics import shown_metrics
from fedpca.runs.scores import Spread

JUDGED = ("precision", "recall", "f1", "accused_common", "accused_rare")
WRONG = "Wrong common and wrong rare: common and rare clients judged mislabeled that are not."


def for_terminal(tables: Sequence[Results]) -> list[Sheet]:
    """One overview per scenario, its test groups, the paper's numbers if asked for, and who was judged mislabeled.

    Scenarios that differ in their attack alone are in one table of attacks in place of all these.
    """
    shown = _but_attacks(tables)
    judging = [results for results in shown if any(row.judged for row in results.rows)]
    judged = [judged_mislabeled(results, alone=len(tables) == 1) for results in judging]
    sheets = [*map(overview, shown), *group_sheets(shown, MAX_LINES), *_beside(shown), *_against(tables), *judged]
    return [*sheets, *map(attack_lines, attack_groups(tables))]


def for_pages(tables: Sequence[Results]) -> list[Sheet]:
    """The paper's tables, with scenarios that differ in nothing but their noise side by side."""
    sheets: list[Sheet] = []
    for scenarios in group_by_noise(_but_attacks(tables)):
        made = (main(scenarios), deviations(scenarios), weights(scenarios), identification(scenarios))
        unknown = [judged_mislabeled(results, alone=False) for results in scenarios if results.mislabeled is None]
        shown = [sheet for sheet in (*made, *unknown) if sheet.lines]
        sheets += [*shown, *group_sheets(scenarios), *_beside(scenarios), *_against(scenarios)]
    return [*sheets, *(sheet for scenarios in attack_groups(tables) for sheet in attack_pages(scenarios))]


def _but_attacks(tables: Sequence[Results]) -> list[Results]:
    """The scenarios without those that differ from others in their attack alone."""
    several = [results for scenarios in attack_groups(tables) if len(scenarios) > 1 for results in scenarios]
    return [results for results in tables if not any(results is own for own in several)]


def group_by_noise(tables: Sequence[Results]) -> list[list[Results]]:
    """Scenarios that differ in rho and eta (and name) alone, together, by rising rho; others by themselves."""
    alike: dict[str, list[Results]] = {}
    for results in tables:
        shared = json.loads(results.scenario)
        noise = {**shared["noise"], "clients": None, "labels": None}
        alike.setdefault(json.dumps({**shared, "name": None, "noise": noise}), []).append(results)
    return [scenarios for members in alike.values() for scenarios in _separate(members)]


def _separate(alike: list[Results]) -> list[list[Results]]:
    """All together if no two have the same noise, else each alone under its own title."""
    if max(Counter(map(noise_of, alike)).values()) > 1:
        return [[results] for results in alike]
    return [sorted(alike, key=lambda results: (results.settings.noise.clients, results.settings.noise.rates))]


def noise_of(results: Results) -> str:
    """Rho and eta in words."""
    noise = results.settings.noise
    eta = ", ".join(f"{round(rate, 4)}" for rate in noise.rates) if noise.has_rates else f"column {noise.column}"
    return f"ρ = {round(noise.clients, 4)}, η = {eta}"


def main(scenarios: Sequence[Results]) -> Sheet:
    """Worst and average over the test groups."""
    names = names_of(shown_metrics(scenarios[0].accuracy), ("worst", "average"))
    notes = (_pooling(scenarios), "Best in bold.", *_replanned(scenarios))
    return _side_by_side("Worst and average over the test groups", scenarios, names, notes)


def deviations(scenarios: Sequence[Results]) -> Sheet:
    """The deviation over the test groups; no lines where there is only one group."""
    names = names_of(shown_metrics(scenarios[0].accuracy), ("std",)) if len(scenarios[0].groups) > 1 else []
    notes = (_pooling(scenarios), "Lowest in bold.")
    return _side_by_side("Deviation (STD) over the test groups", scenarios, names, notes)


def weights(scenarios: Sequence[Results]) -> Sheet:
    """What rare clients weigh, times what the mislabeled do not."""
    product = "Weight of the rare clients times (1 - weight of the mislabeled clients)"
    explained = f"{product}, averaged over all rounds and seeds."
    return _side_by_side("Weights, w_r(1-w_m)", scenarios, (WEIGHT,), (explained, "Highest in bold."))


def identification(scenarios: Sequence[Results]) -> Sheet:
    """How right the judgements are; no lines where the truth is not known."""
    notes = ("Means over the last rounds of every seed.", WRONG)
    return _side_by_side("Judged mislabeled", scenarios, JUDGED, notes)


def overview(results: Results) -> Sheet:
    """The headline of one scenario, for a terminal; one test group has no average or deviation over groups."""
    accuracy, *others = shown_metrics(results.accuracy)
    single = len(results.groups) == 1
    names = [*names_of([accuracy]), *names_of(others, ("worst", "average")), WEIGHT]
    names = [name for name in names if not (single and name.startswith(("average", "std"))) and _known(results, name)]
    wide = {WEIGHT, *names_of([accuracy], ("std",)), *names_of(others, ("average",))}
    columns = [*_columns(names, wide=wide), Column("seeds", 0)]
    if single:
        columns = [replace(column, head=column.head.removeprefix("worst ")) for column in columns]
    lines = [_line(row, [*_cells(row, names), Cell(row.seeds)], [row]) for row in results.rows]
    notes = (_pooling([results]), *_stars(lines), *_replanned([results]))
    return Sheet(results.title, tuple(columns), mark_best(columns, lines), notes)


def _known(results: Results, name: str) -> bool:
    """Whether any row has this score."""
    return any(score_of(name).of(row) is not None for row in results.rows)


def judged_mislabeled(results: Results, alone: bool = True) -> Sheet:
    """Who was judged mislabeled in one scenario, for a terminal; unless alone, it says in which."""
    known = JUDGED if results.mislabeled is not None else ()
    truly = None if results.mislabeled is None else ", ".join(results.mislabeled) or "nobody"
    words = Column("clients in the last round (seeds, if not all)")
    untold = any(row.judged and row.judged.cannot_tell for row in results.rows)
    columns = (*_columns(known, wide={"precision", "recall"}), words, *([Column("cannot be told")] * untold))
    lines = [
        Line("", row.method, (*_cells(row, known), row.judged.clients(), *_untold(row, untold)), bool(row.unfinished))
        for row in results.rows
        if row.judged
    ]
    truth = "the truth is not known" if truly is None else f"truly: {truly}"
    title = f"Judged mislabeled ({truth})" + ("" if alone else f"; {results.title}")
    return Sheet(title, columns, tuple(lines), (*([WRONG] if known else []), *_estimates(results.rows), *_stars(lines)))


def _untold(row: Row, shown: bool) -> list[str]:
    return [row.judged.untold() if row.judged and row.judged.cannot_tell else "-"] * shown


def _estimates(rows: Sequence[Row]) -> Iterator[str]:
    """The shares of wrong labels of whoever is judged mislabeled by a method that estimates them, with one seed."""
    for row in rows:
        made = {c: own for c, own in (row.judged.estimates if row.judged else {}).items() if own.share is not None}
        if made:
            shares = [f"{c} {own.share:.2f} ({own.low:.2f} to {own.high:.2f})" for c, own in made.items()]
            others = [f"{len(shares) - MAX_LINES} others"] * (len(shares) > MAX_LINES)
            listed = ", ".join([*shares[:MAX_LINES], *others])
            yield f"{row.method}: estimated share of wrong labels, at least, with its 95 % interval: {listed}."


def beside(results: Results, published: PaperNumbers) -> list[Sheet]:
    """The paper's numbers beside ours, a table for each metric, and whether the methods come in the same order."""
    title = f"Beside the paper; {results.title}" + (f"; the paper: {published.setting}" if published.setting else "")
    made = [_metric_beside(title, results, published, orders) for orders in _by_metric(published.orders)]
    if not made:
        return [Sheet(title, (), (), published.remarks)]
    *others, last = made
    return [*others, replace(last, notes=(*last.notes, *published.remarks))]


def _by_metric(orders: Sequence[Order]) -> list[list[Order]]:
    """The scores of each metric, and the weights by themselves: so each table fits into a terminal."""
    groups: dict[str, list[Order]] = {}
    for order in orders:
        groups.setdefault(order.score.partition("_")[2], []).append(order)
    return [*groups.values()]


def _metric_beside(title: str, results: Results, published: PaperNumbers, orders: Sequence[Order]) -> Sheet:
    names = [order.score for order in orders]
    wide = [name for name in names if name.startswith("std_")]
    columns = [
        replace(column, head=head, group=column.head)
        for column in _columns(names, wide=wide)
        for head in ("ours", "paper")
    ]
    lines = [
        _line(row, [*_pairs(row, pairs, names)], [row])
        for row in results.rows
        if (pairs := published.pairs.get(row.method, {})).keys() & set(names)
    ]
    dashes = [f"-: {published.absent}."] if any(None in line.cells[1::2] for line in lines) else []
    return Sheet(title, tuple(columns), mark_best(columns, lines), (*_orders(orders), *dashes, *_stars(lines)))


def _pairs(row: Row, pairs: Mapping[str, Pair], names: Sequence[str]) -> Iterator[Cell | None]:
    """Our number and the paper's, score by score."""
    for cell, name in zip(_cells(row, names), names, strict=True):
        yield cell
        yield Cell(pairs[name].paper, pairs[name].spread) if name in pairs else None


def _beside(tables: Sequence[Results]) -> list[Sheet]:
    return [sheet for results in tables if results.published for sheet in beside(results, results.published)]


def _against(tables: Sequence[Results]) -> list[Sheet]:
    sheets = [against_sheet(results, results.against) for results in tables if results.against]
    return [replace(sheet, notes=(*sheet.notes, *_stars(sheet.lines))) for sheet in sheets]


def _side_by_side(what: str, scenarios: Sequence[Results], names: Sequence[str], notes: Sequence[str]) -> Sheet:
    """These scores of every scenario; a method without any is left out."""
    by_method = [{row.method: row for row in results.rows} for results in scenarios]
    rows = sorted({label: row for own in by_method for label, row in own.items()}.values(), key=place)
    heads = [noise_of(results) if len(scenarios) > 1 else "" for results in scenarios]
    columns = [column for head in heads for column in _columns(names, head)]
    lines = []
    for row in rows:
        own = [rows_of.get(row.method) for rows_of in by_method]
        cells = [cell for each in own for cell in _cells(each, names)]
        if any(cells):
            lines.append(_line(row, cells, [each for each in own if each]))
    dashes = ["-: no runs, or not defined."] if any(None in line.cells for line in lines) else []
    notes = (*notes, *_seeds(scenarios), *dashes, *_stars(lines))
    return Sheet(f"{what}; {common_title(scenarios)}", tuple(columns), mark_best(columns, lines), notes)


def _columns(names: Sequence[str], group: str = "", wide: Collection[str] = ()) -> list[Column]:
    """The heads of these scores; narrow terminals do not show those of `wide`."""
    scores = [(name, score_of(name)) for name in names]
    return [Column(score.head, score.digits, score.best, group, name not in wide) for name, score in scores]


def _cells(row: Row | None, names: Sequence[str]) -> list[Cell | None]:
    values = [score_of(name).of(row) if row else None for name in names]
    return [
        Cell(value.mean, value.known_std) if isinstance(value, Spread) else None if value is None else Cell(value)
        for value in values
    ]


def _line(row: Row, cells: Sequence[Cell | str | None], rows: Sequence[Row]) -> Line:
    return Line(row.category, row.method, tuple(cells), any(each.unfinished for each in rows))


def _pooling(scenarios: Sequence[Results]) -> str:
    groups, last = listed_groups(scenarios[0].groups), scenarios[0].settings.evaluation.last_rounds
    rounds = f"last {last} tested rounds" if last > 1 else "last round"
    over = f"over the {rounds} of every seed"
    if scenarios[0].deviation == "seeds":
        over = f"(n - 1) over the seeds, of each seed's mean over the {rounds}"
    return f"Percent; mean ± deviation {over}; test groups: {groups}."


def _seeds(scenarios: Sequence[Results]) -> Iterator[str]:
    seeds = {row.seeds for results in scenarios for row in results.rows}
    if seeds:
        many = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{max(seeds)}"
        yield f"{many} seed{'s' * (max(seeds) > 1)}."


def _stars(lines: Sequence[Line]) -> Iterator[str]:
    if any(line.unfinished for line in lines):
        yield "* has runs that are not finished."


def _replanned(scenarios: Sequence[Results]) -> Iterator[str]:
    """Which methods have runs that are not what as many rounds from the start would be."""
    rows = [row for results in scenarios for row in results.rows if row.replanned]
    if names := ", ".join(dict.fromkeys(row.method for row in rows)):
        planned = "Begun with another number of rounds, which the method depends on"
        yield f"{planned}; {scenarios[0].settings.rounds} rounds from the start would differ: {names}."


def _orders(orders: Sequence[Order]) -> Iterator[str]:
    """How far the order of methods agrees, score by score."""
    known = [f"{score_of(o.score).head} {o.tau:.2f} ({o.methods} methods)" for o in orders if o.tau is not None]
    if known:
        yield f"Order of the methods, Kendall's tau-b (1: as in the paper, -1: reversed): {', '.join(known)}."
    few = [f"{score_of(o.score).head} ({o.methods})" for o in orders if o.methods < 3]
    if few:
        yield f"Fewer than 3 methods in both, so no order to compare: {', '.join(few)}."
    flat = [score_of(o.score).head for o in orders if o.tau is None and o.methods >= 3]
    if flat:
        yield f"All methods the same on one side, so no order to compare: {', '.join(flat)}."
