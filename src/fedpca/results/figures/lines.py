"""Rows of panels with a line per method: one row if the methods are few, else a row per family."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedpca.results.figures import series, style
from fedpca.results.figures.style import LINES, REFERENCE, Look

Plot = Callable[[Axes, str, str, Look], None]  # draws one method's line: panel, column, label, look


def draw_rows(
    methods: Sequence[tuple[str, str]], columns: Sequence[str], across: str, plot: Plot
) -> tuple[Figure, list[list[Axes]]]:
    """A panel per family and column for these (label, method) pairs, with a legend beside each row."""
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
        names = [style.wrapped(label) for label in labels]
        row[-1].legend(handles, names, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.6)
    for axes in grid[-1]:
        axes.set_xlabel(across)
    return figure, grid


def panels(methods: Sequence[tuple[str, str]], most: int = len(LINES)) -> list[tuple[str, dict[str, Look]]]:
    """How (label, method) pairs are spread over rows, with titles; FedAvg is the reference in every row."""
    reference = {label: REFERENCE for label, method in methods if method == "fedavg"}
    rest = [(label, series.family(method)) for label, method in methods if label not in reference]
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
