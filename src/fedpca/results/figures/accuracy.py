"""Accuracy over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.lines import draw_bands
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run


@style.for_journals
def draw_accuracy(runs: Sequence[Run]) -> Figure | None:
    """Worst and average accuracy of every method."""
    methods = series.by_method([run for run in runs if run.last()])
    if not methods:
        return None
    metric, words = runs[0].accuracy, metric_words(runs[0].accuracy)
    curves = {
        f"{which} {words} (%)": {
            label: series.over_rounds(own, partial(series.over_groups, metric=metric, which=which))
            for label, own in methods.items()
        }
        for which in ("worst", "average")
    }
    figure, grid = draw_bands(methods, curves)
    cut = style.limit_accuracy(grid, [[y for curve in own.values() for y in curve.late()] for own in curves.values()])
    below = f"{style.not_from_zero(words)} Early rounds may lie below them." if cut else ""
    style.note(figure, series.scenario(runs), series.seeds(methods), below)
    return figure


FIGURE = FigureKind("accuracy", draw_accuracy, "no round has been tested yet")
