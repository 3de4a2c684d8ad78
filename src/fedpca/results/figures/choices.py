"""What a method chose by itself, over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.lines import draw_bands
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.series import Line
from fedpca.results.read.runs import Run
from fedpca.runs.scores import Spread, spread

COLUMNS = {
    "lift": "lift of rare clients",
    "corrected": "clients corrected",
    "dropped": "clients dropped",
    "sharpness": "sharpness-aware (share of seeds)",
}


@style.for_journals
def draw_choices(runs: Sequence[Run]) -> Figure | None:
    """Lift, corrected and dropped clients, and use of sharpness."""
    own = [run for run in runs if any(line.get("choices") for line in run.rounds)]
    methods = series.by_method(own)
    if not methods:
        return None
    made = {choice["what"] for run in own for choice in run.rounds[-1].get("choices") or []}
    curves = {
        words: {label: series.over_rounds(some, partial(_value, what=what)) for label, some in methods.items()}
        for what, words in COLUMNS.items()
        if what in made
    }
    figure, grid = draw_bands(methods, curves)
    for row in grid:
        for axes in row:
            axes.set_ylim(bottom=0)
    style.note(figure, series.scenario(own), series.seeds(methods))
    return figure


def _value(lines: Sequence[Line], what: str) -> Spread | None:
    known = [own["value"] for line in lines for own in line.get("choices") or [] if own["what"] == what]
    return spread(known) if known else None


FIGURE = FigureKind("choices", draw_choices, "no method of these runs chooses anything by itself")
