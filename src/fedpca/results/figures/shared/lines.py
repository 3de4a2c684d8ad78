"""Rows of panels with a line per method: one row if the methods are few, else a row per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedpca.methods.define import FAMILIES
from fedpca.results.figures.shared import style
from fedpca.results.figures.shared.series import Curve, Methods
from fedpca.results.figures.shared.style import LINES, REFERENCE, Look

Curves = Mapping[str, Mapping[str, Curve]]  # of each quantity and method
Plot = Callable[[Axes, str, str, Look], None]  # draws one method's line: panel, column, label, look


def draw_rows(
    methods: Sequence[tuple[str, str]], columns: Sequence[str], across: str, plot: Plot
) -> tuple[Figure, list[list[Axes]]]:
    """A panel per family and column for these methods, (label, family) each, with a legend beside each row."""
    rows = panels(methods)
    height = 0.55 + (1.6 if len(rows) > 1 else 2.2) * len(rows)
    figure, grid = style.canvas(len(rows), len(columns), style.WIDTH, height, share="x")
    for (title, looks), row in zip(rows, grid, strict=True):
        for axes, column in zip(row, columns, strict=True):
            for label, look in looks.items():
                plot(axes, column, label, look)
            axes.set_ylabel(column)
        row[0].set_title(title, loc="left", fontweight="bold")
        handles, labels = row[0].get_legend_handles_labels()
        names = [style.wrap_label(label) for label in labels]
        row[-1].legend(handles, names, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.6)
    for axes in grid[-1]:
        axes.set_xlabel(across)
    return figure, grid


def panels(methods: Sequence[tuple[str, str]], most: int = len(LINES)) -> list[tuple[str, dict[str, Look]]]:
    """How methods, (label, family) each, are spread over rows, with titles; the baseline is in every row."""
    reference = {label: REFERENCE for label, family in methods if family == "baseline"}
    rest = [(label, FAMILIES[family]) for label, family in methods if label not in reference]
    if len(rest) <= most:
        return [("", reference | dict(zip([label for label, _ in rest], LINES, strict=False)))]
    found = []
    for title in dict.fromkeys(family for _, family in rest):
        own = [label for label, family in rest if family == title]
        parts = [own[i : i + most] for i in range(0, len(own), most)]
        for number, part in enumerate(parts, 1):
            name = f"{title} ({number}/{len(parts)})" if len(parts) > 1 else title
            found.append((name, reference | dict(zip(part, LINES, strict=False))))
    return found


def draw_bands(methods: Methods, curves: Curves) -> tuple[Figure, list[list[Axes]]]:
    """Lines over the rounds with their bands: a column of panels per quantity; identical methods share a line."""
    shared = share_labels(list(methods), curves)

    def plot(axes: Axes, column: str, label: str, look: Look) -> None:
        _band(axes, curves[column][shared[label]], label, look)
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    families = [(label, methods[first][0].family) for label, first in shared.items()]
    return draw_rows(families, list(curves), "round", plot)


def share_labels(labels: Sequence[str], curves: Curves) -> dict[str, str]:
    """A label for all methods with the same curves, "a = b", and the first of them."""
    alike: dict[object, list[str]] = {}
    for label in labels:
        alike.setdefault(tuple(own[label].key() for own in curves.values()), []).append(label)
    return {style.SAME.join(own): own[0] for own in alike.values()}


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
