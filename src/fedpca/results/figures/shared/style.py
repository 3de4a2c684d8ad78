"""What all figures share: sizes, colours that colour-blind readers can tell apart, panels and captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SAME = " = "  # between methods with one label
LAST = "Of each seed the mean over its last rounds."
WIDTH = 7.2  # inches: two columns of a journal
NARROW = 3.5  # one column
RC: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "text.parse_math": False,  # a $ in the name of a class is a $
    "pdf.fonttype": 42,  # letters as letters: journals refuse the default
    "savefig.dpi": 200,
}

for_journals = rc_context(RC)  # around every function that draws

# Okabe and Ito 2008, without the yellow that is lost on white
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"


@dataclass(frozen=True)
class Look:
    """How a thing is drawn: each can be told from the others by colour alone and without colour."""

    colour: str
    marker: str
    line: str | tuple[float, tuple[float, ...]] = "-"


KINDS = {  # of clients, judged or true
    "common": Look(BLUE, "o"),
    "rare": Look(ORANGE, "s"),
    "mislabeled": Look(VERMILION, "^"),
    "rare and mislabeled": Look(PURPLE, "D"),
}
UNKNOWN = Look(GREY, "o")
REFERENCE = Look(GREY, "", (0, (4, 1.5)))  # FedAvg, beside whatever it is compared with
LINES = (
    Look(BLUE, "o", "-"),
    Look(VERMILION, "^", "-"),
    Look(GREEN, "s", "-"),
    Look(ORANGE, "D", "-"),
    Look(SKY, "v", "--"),
    Look(PURPLE, "P", "--"),
    Look("#000000", "X", ":"),
)


def canvas(
    rows: int, columns: int, width: float, height: float, share: bool | Literal["x"] = False
) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure of so many panels, laid out so that nothing overlaps; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=bool(share), sharey=share is True)
    return figure, [list(row) for row in grid]


def finish_grid(grid: Sequence[Sequence[Axes]], used: int, across: str, up: str) -> None:
    """Names the axes at the left and below, and hides the panels that are left over."""
    columns = len(grid[0])
    for number, axes in enumerate(axes for row in grid for axes in row):
        axes.set_visible(number < used)
        if number % columns == 0:
            axes.set_ylabel(up)
        axes.tick_params(labelbottom=True)
        if number >= len(grid) * columns - columns:
            axes.set_xlabel(across)


def note(figure: Figure, *sentences: str) -> None:
    """What a reader must know, in small print below the panels."""
    width, size = figure.get_size_inches()[0], 6.5
    text = " ".join(sentence for sentence in sentences if sentence)
    figure.supxlabel(fill(text, int(width * 72 / (0.54 * size))), x=0.01, ha="left", fontsize=size, color="0.25")


def not_from_zero(metric: str) -> str:
    """Says that the axes of a metric are cut."""
    return f"{metric[0].upper()}{metric[1:]} axes do not start at 0."


def wrap_label(label: str, width: int = 26) -> str:
    """A method's name, with its settings on lines of their own where both are too long for one.

    Methods that share a label stand on lines of their own.
    """
    if SAME in label:
        return f"{SAME.rstrip()}\n".join(wrap_label(own, width) for own in label.split(SAME))
    name, bracket, settings = label.partition(" (")
    return label if len(label) <= width or not bracket else "\n".join((name, fill(f"({settings}", width)))


def shorten(name: str, most: int = 14) -> str:
    """A client's name, cut where it is too long to stand beside a point or an axis."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def limit_accuracy(grid: Sequence[Sequence[Axes]], values: Sequence[Sequence[float]]) -> bool:
    """Gives each column of panels the same limits around its values in percent; whether zero is left out."""
    limits = [pad_limits(own) for own in values]
    for row in grid:
        for axes, (low, high) in zip(row, limits, strict=True):
            axes.set_ylim(low, high)
    return any(low > 0 for low, _ in limits)


def pad_limits(values: Sequence[float], share: float = 0.05, least: float = 5.0) -> tuple[float, float]:
    """Limits in percent around all values, with a margin on both sides and so many points apart at the least.

    The least keeps small differences small to the eye.
    """
    low, high = min(values), max(values)
    margin = max(share * (high - low), (least - (high - low)) / 2)
    return max(0.0, low - margin), min(100.0, high + margin)
