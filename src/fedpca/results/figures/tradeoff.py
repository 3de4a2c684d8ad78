"""Fairness against robustness: the rare group's accuracy over the common group's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from fedpca.methods.define import FAMILIES
from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.labels import name_points
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.style import Look
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run
from fedpca.runs.scores import Spread, spread

LOOKS = {  # of families
    "baseline": Look("#000000", "*"),
    "optimisation": Look("#FFFFFF", "p"),
    "fair": Look(style.SKY, "s"),
    "robust": Look(style.GREEN, "^"),
    "fair + robust": Look(style.PURPLE, "D"),
    "ours": Look(style.VERMILION, "o"),
    "ablation": Look(style.GREY, "X"),
    "drop": Look(style.ORANGE, "v"),
    "apart": Look("#000000", "d"),
    "outside": Look(style.BLUE, "P"),
}
MAX_NAMES = 8  # methods up to which names stand beside the points, and numbers beyond
MAX_FAMILIES = 6  # in a row of the wide figure's legend
Window = tuple[tuple[float, float], tuple[float, float]]  # limits of common and rare accuracy


@dataclass(frozen=True)
class Point:
    """One method: accuracy in percent over its seeds, of each seed the mean over its last rounds."""

    label: str
    family: str
    common: Spread
    rare: Spread


@style.for_journals
def draw_tradeoff(runs: Sequence[Run]) -> Figure | None:
    """Each method's rare accuracy against its common accuracy; a second panel enlarges where most methods are."""
    methods = series.by_method([run for run in runs if {"common", "rare"} <= set(run.last())])
    if not methods:
        return None
    metric = metric_words(runs[0].accuracy)
    points = [_point(label, own) for label, own in methods.items()]
    windows = [_around(points), *([_around(some, least=0)] if (some := crowd(points)) else [])]
    lines = -(-len(points) // 3) if len(points) > MAX_NAMES else 0
    figure = Figure(figsize=(style.WIDTH if lines else 4.8, 3.4 + 0.16 * lines), layout="constrained")
    above, below = _halves(figure, 0.16 * lines + 0.1) if lines else (figure, None)
    row = above.subplots(1, len(windows), squeeze=False, width_ratios=(2, 3)[-len(windows) :])[0]
    for axes, (across, up) in zip(row, windows, strict=True):
        _scatter(axes, points)
        axes.set(xlabel=f"common {metric} (%)", xlim=across, ylim=up)
    row[0].set_ylabel(f"rare {metric} (%)")
    handles = _families(above, points)
    if below is not None:
        names = [f"{number} {point.label}" for number, point in enumerate(points, 1)]
        marks = [handles[point.family] for point in points]
        below.legend(marks, names, loc="upper center", ncols=3, handletextpad=0.2, columnspacing=1.5)
    cut = style.not_from_zero(metric) if any(low > 0 for window in windows for low, _ in window) else ""
    style.note(figure, series.scenario(runs), style.LAST, series.seeds(methods, "points and bars"), cut)
    _name(figure, row, points, windows, numbered=bool(lines))
    return figure


def _halves(figure: Figure, height: float) -> tuple[FigureBase, FigureBase]:
    """A part for the panels, and one below that is so many inches high."""
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(figure.get_figheight() - height, height))[:, 0]
    return above, below


def crowd(points: Sequence[Point]) -> list[Point]:
    """The methods that lie close together, if they are many and others lie far off by Tukey's fences; else nobody."""
    places = np.array([(point.common.mean, point.rare.mean) for point in points])
    low, high = np.quantile(places, (0.25, 0.75), axis=0)
    near = ((places >= low - 1.5 * (high - low)) & (places <= high + 1.5 * (high - low))).all(axis=1)
    return (
        [] if near.all() or len(points) <= MAX_NAMES else [p for p, inside in zip(points, near, strict=True) if inside]
    )


def _point(label: str, runs: Sequence[Run]) -> Point:
    last = [run.last() for run in runs]
    common, rare = (spread([100 * fmean(values[group]) for values in last]) for group in ("common", "rare"))
    return Point(label, runs[0].family, common, rare)


def _around(points: Sequence[Point], least: float = 5.0) -> Window:
    """Limits that hold these points with their bars."""
    common = [p.common.mean + side * p.common.std for p in points for side in (-1, 1)]
    rare = [p.rare.mean + side * p.rare.std for p in points for side in (-1, 1)]
    return style.pad_limits(common, 0.08, least), style.pad_limits(rare, 0.08, least)


def _scatter(axes: Axes, points: Sequence[Point]) -> None:
    for point in points:
        look = LOOKS[point.family]
        x, y = point.common, point.rare
        axes.errorbar(x.mean, y.mean, y.std, x.std, fmt="none", ecolor="0.8", elinewidth=0.6, zorder=1)
        axes.plot(x.mean, y.mean, look.marker, color=look.colour, markeredgecolor="black", markeredgewidth=0.4, ms=5.5)


def _name(
    figure: Figure, row: Sequence[Axes], points: Sequence[Point], windows: Sequence[Window], numbered: bool
) -> None:
    """Names each point in the most enlarged panel that shows it; methods with the same result share one label."""
    texts: dict[tuple[float, float], list[str]] = {}
    for number, point in enumerate(points, 1):
        texts.setdefault((point.common.mean, point.rare.mean), []).append(str(number) if numbered else point.label)
    if len(windows) > 1:
        (left, right), (low, high) = windows[1]
        row[0].add_patch(Rectangle((left, low), right - left, high - low, fill=False, color="0.5", linewidth=0.6))
        row[1].set_title("enlarged")
    inside = [place for place in texts if len(windows) > 1 and _holds(windows[1], place)]
    outside = [place for place in texts if place not in inside]
    for axes, own in zip(row, (outside, inside), strict=False):
        name_points(figure, axes, [(*place, ", ".join(texts[place])) for place in own])


def _holds(window: Window, place: tuple[float, float]) -> bool:
    return all(low <= value <= high for value, (low, high) in zip(place, window, strict=True))


def _families(figure: FigureBase, points: Sequence[Point]) -> dict[str, Line2D]:
    """The marker of each family, with a legend of them above the panels."""
    looks = {name: LOOKS[name] for name in dict.fromkeys(point.family for point in points)}
    handles = {
        name: Line2D([], [], color=look.colour, marker=look.marker, mec="black", mew=0.4, linestyle="", ms=5)
        for name, look in looks.items()
    }
    columns = min(len(handles), MAX_FAMILIES) if len(points) > MAX_NAMES else 3
    figure.legend([*handles.values()], [FAMILIES[name] for name in handles], loc="outside upper center", ncols=columns)
    return handles


FIGURE = FigureKind("tradeoff", draw_tradeoff, "no run has been tested on a common and a rare group")
