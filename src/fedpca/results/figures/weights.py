"""What rare and mislabeled clients weigh over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.lines import draw_bands
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.read.runs import Run


@style.for_journals
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
    figure, grid = draw_bands(methods, curves)
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
    return float(
        sum(sizes[client] for client in run.about["rare" if group == "rare" else "mislabeled"]) / sum(sizes.values())
    )


FIGURE = FigureKind("weights", draw_weights, "no run has weights of clients that are known to be rare or mislabeled")
