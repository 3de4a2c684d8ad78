"""What happens over the rounds: accuracy and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedpca.results.figures import series, style
from fedpca.results.figures.lines import draw_rows
from fedpca.results.figures.series import Curve, Methods
from fedpca.results.figures.style import Look
from fedpca.results.read.runs import Run

Curves = Mapping[str, Mapping[str, Curve]]  # of each quantity and method


@style.styled
def draw_accuracy(runs: Sequence[Run]) -> Figure | None:
    """Worst and average accuracy of every method."""
    methods = series.by_method([run for run in runs if run.last("acc")])
    if not methods:
        return None
    curves = {
        f"{which} accuracy (%)": {
            label: series.over_rounds(own, partial(series.accuracy, which=which)) for label, own in methods.items()
        }
        for which in ("worst", "average")
    }
    figure, grid = _draw(methods, curves)
    cut = style.limit_accuracy(grid, [[y for curve in own.values() for y in curve.late()] for own in curves.values()])
    told = f"{style.NOT_FROM_ZERO} Early rounds may lie below them." if cut else ""
    style.note(figure, series.scenario(runs), series.seeds(methods), told)
    return figure


@style.styled
def draw_weights(runs: Sequence[Run]) -> Figure | None:
    """What rare and mislabeled clients weigh in the aggregation, together."""
    groups = [group for group in ("rare", "mislabeled") if runs[0].about.get(group)]
    every = series.by_method(runs)
    methods = {label: own for label, own in every.items() if any(map(_has_weights, own))}
    if not groups or not methods:
        return None
    curves = {
        f"weight of the {group}": {
            label: series.over_rounds(own, partial(series.weight, group=group)) for label, own in methods.items()
        }
        for group in groups
    }
    figure, grid = _draw(methods, curves)
    top = max(float((curve.mean + curve.std).max()) for own in curves.values() for curve in own.values())
    for row in grid:
        for axes, group in zip(row, groups, strict=True):
            axes.set_ylim(0, min(1.0, 1.08 * top))
            axes.axhline(_share(runs[0], group), color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    without = ", ".join(label for label in every if label not in methods)
    left = f"Without weights, so left out: {without}." if without else ""
    dotted = "Dotted: these clients' share of all images."
    style.note(figure, series.scenario(runs), series.seeds(methods), dotted, left)
    return figure


def _has_weights(run: Run) -> bool:
    return any(line.get("weights") for line in run.rounds)


def _share(run: Run, group: str) -> float:
    """A group's share of the images."""
    sizes = dict(zip(run.about["clients"]["id"], run.about["clients"]["size"], strict=True))
    return float(sum(sizes[client] for client in run.about[group]) / sum(sizes.values()))


def _draw(methods: Methods, curves: Curves) -> tuple[Figure, list[list[Axes]]]:
    """A line with its band per method, a column of panels per quantity."""

    def plot(axes: Axes, column: str, label: str, look: Look) -> None:
        _band(axes, curves[column][label], label, look)
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return draw_rows([(label, own[0].method) for label, own in methods.items()], list(curves), "round", plot)


def _band(axes: Axes, curve: Curve, label: str, look: Look) -> None:
    """Markers of different lines stand in different rounds, so that lines on top of each other are seen."""
    every = max(1, len(curve.rounds) // 6)
    first = len(axes.lines) * every // 7 % every
    axes.plot(
        curve.rounds,
        curve.mean,
        label=label,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker or None,
        markevery=(first, every),
    )
    low, high = curve.mean - curve.std, curve.mean + curve.std
    axes.fill_between(curve.rounds, low, high, color=look.colour, alpha=0.13, linewidth=0)
