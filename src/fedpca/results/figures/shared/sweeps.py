"""The effect of one setting of a method: runs that differ in nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.lines import draw_rows
from fedpca.results.figures.shared.style import Look
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run
from fedpca.results.read.sweeps import sweeps


@style.for_journals
def draw_setting(runs: Sequence[Run], key: str, name: str) -> Figure | None:
    """Worst and average accuracy over the values of one setting, for each method that has at least two."""
    found = sweeps(runs, key)
    if not found:
        return None
    metric = metric_words(runs[0].accuracy)
    panels = {f"{which} {metric} (%)": which for which in ("worst", "average")}
    values = {
        column: {label: [getattr(series.final(own), which) for own in sweep.values()] for label, sweep in found.items()}
        for column, which in panels.items()
    }

    def plot(axes: Axes, column: str, label: str, look: Look) -> None:
        axes.errorbar(
            list(found[label]),
            [value.mean for value in values[column][label]],
            [value.std for value in values[column][label]],
            label=label,
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            capsize=2,
            elinewidth=0.8,
        )

    methods = [(label, next(iter(sweep.values()))[0].family) for label, sweep in found.items()]
    figure, grid = draw_rows(methods, list(panels), name, plot)
    _scale(grid, sorted({value for sweep in found.values() for value in sweep}))
    edges = [[v.mean + side * v.std for own in by.values() for v in own for side in (-1, 1)] for by in values.values()]
    cut = style.not_from_zero(metric) if style.limit_accuracy(grid, edges) else ""
    seeds = {f"{label}, {name} {value:g}": own for label, sweep in found.items() for value, own in sweep.items()}
    style.note(figure, series.scenario(runs), style.LAST, series.seeds(seeds, "points and bars"), cut)
    return figure


def _scale(grid: Sequence[Sequence[Axes]], values: Sequence[float]) -> None:
    """A tick at each value; logarithmic where they span a factor of ten or more, linear up to the least above 0."""
    above = [value for value in values if value > 0]
    for axes in (axes for row in grid for axes in row):
        if above[-1] >= 10 * above[0]:
            axes.set_xscale("symlog", linthresh=above[0], linscale=0.5)
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
