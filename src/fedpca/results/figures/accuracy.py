"""Accuracy over the rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from matplotlib.figure import Figure

from fedpca.methods.define import FAMILIES
from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.lines import draw_bands
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.series import Curve
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run

FEATURED = "ours"  # the family of which no round may lie outside the axes


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
    featured = {label for label, own in methods.items() if own[0].family == FEATURED}
    cut = style.limit_accuracy(grid, [_shown(own, featured) for own in curves.values()])
    others = f"of methods other than {FAMILIES[FEATURED]} " * bool(featured)
    below = f"{style.not_from_zero(words)} Early rounds {others}may lie below them." if cut else ""
    style.note(figure, series.scenario(runs), series.seeds(methods), below)
    return figure


def _shown(curves: Mapping[str, Curve], featured: Collection[str]) -> list[float]:
    """What the axes must have room for: of featured methods everything, of the others the second half of the rounds."""
    return [y for label, curve in curves.items() for y in (curve.whole() if label in featured else curve.late())]


FIGURE = FigureKind("accuracy", draw_accuracy, "no round has been tested yet")
