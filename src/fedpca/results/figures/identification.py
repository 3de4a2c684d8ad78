"""Who is judged mislabeled over the rounds, rightly or wrongly, and who is missed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.series import Curve, Line, Methods
from fedpca.results.read.clients import truth
from fedpca.results.read.runs import Run
from fedpca.runs.scores import Spread, spread

COUNTS = {  # colour, hatch, and direction: upwards who is truly mislabeled, downwards who is wrongly judged so
    "rightly judged mislabeled": (style.GREEN, "", 1),
    "missed": ("#E3E3E3", "......", 1),
    "wrongly: common": (style.BLUE, "//////", -1),
    "wrongly: rare": (style.ORANGE, "xxxx", -1),
}


@style.for_journals
def draw_identification(runs: Sequence[Run]) -> Figure | None:
    """A panel per method that judges clients, where the truth is known."""
    methods = {label: own for label, own in series.by_method(runs).items() if any(map(_judges, own))}
    kinds = truth(runs[0])
    if not methods or kinds is None:
        return None
    columns = min(len(methods), 4)
    rows = -(-len(methods) // columns)
    width = style.WIDTH if columns > 1 else style.NARROW
    figure, grid = style.canvas(rows, columns, width, 0.9 + (1.3 if rows > 1 else 1.8) * rows, share=True)
    cells = [axes for row in grid for axes in row]
    for axes, (label, own) in zip(cells, methods.items(), strict=False):
        _stack(axes, own, kinds)
        axes.set_title(style.wrap_label(label))
    low, high = cells[0].get_ylim()
    cells[0].set_ylim(min(1.05 * low, -1), max(1.05 * high, 1))
    style.finish_grid(grid, len(methods), "round", "clients")
    handles, labels = cells[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4 if columns > 2 else 2)
    style.note(figure, series.scenario(runs), _explained(methods))
    return figure


def tally(line: Line, kinds: dict[str, str]) -> dict[str, int] | None:
    """How many clients are judged mislabeled rightly, missed, and judged so wrongly; None if nobody is judged."""
    clients = line["clients"]
    groups = clients.get("group")
    if not groups:
        return None
    judged = {c for c, group in zip(clients["id"], groups, strict=True) if group == "mislabeled"}
    truly = {c for c, kind in kinds.items() if "mislabeled" in kind}
    rare = {c for c, kind in kinds.items() if kind == "rare"}
    counts = (len(judged & truly), len(truly - judged), len(judged - truly - rare), len(judged & rare))
    return dict(zip(COUNTS, counts, strict=True))


def _judges(run: Run) -> bool:
    return any(line["clients"].get("group") for line in run.rounds)


def _count(lines: Sequence[Line], kinds: dict[str, str], name: str) -> Spread | None:
    found = [counts[name] for line in lines if (counts := tally(line, kinds)) is not None]
    return spread(found) if found else None


def _stack(axes: Axes, runs: Sequence[Run], kinds: dict[str, str]) -> None:
    """Counts as steps one round wide, above and below zero."""
    ends: dict[int, series.Floats] = {}
    for name, (colour, hatch, side) in COUNTS.items():
        curve = series.over_rounds(runs, partial(_count, kinds=kinds, name=name))
        base = ends.get(side, np.zeros_like(curve.mean))
        ends[side] = base + side * curve.mean
        edges = np.append(curve.rounds, curve.rounds[-1] + 1) - 0.5
        area = axes.stairs(ends[side], edges, baseline=base, fill=True, label=name)
        area.set(facecolor=colour, hatch=hatch, edgecolor="0.3", linewidth=0)
        if name != "missed":  # which is what those judged rightly leave
            _spread(axes, curve, ends[side])
    axes.axhline(0, color="black", linewidth=0.6)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{abs(y):g}"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.set_xlim(0.5, max(run.settings.rounds for run in runs) + 0.5)


def _spread(axes: Axes, curve: Curve, ends: series.Floats) -> None:
    """The deviation over seeds as a thin bar in some of the rounds that have one."""
    some = np.flatnonzero(curve.std > 0)[:: max(1, len(curve.rounds) // 8)]
    place = curve.rounds[some], ends[some]
    axes.errorbar(*place, curve.std[some], fmt="none", ecolor="black", elinewidth=0.6, capsize=1.5, capthick=0.6)


def _explained(methods: Methods) -> str:
    return (
        f"{series.seeds(methods, 'areas and thin bars')} Above 0: the truly mislabeled; below 0: clients whose labels "
        "are right. Empty: nobody is judged yet."
    )


FIGURE = FigureKind("identification", draw_identification, "no run judges clients of whom the truth is known")
