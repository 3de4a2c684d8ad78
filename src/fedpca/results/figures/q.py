"""The effect of q, the strength of fairness."""

from functools import partial

from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.sweeps import draw_setting

FIGURE = FigureKind(
    "q",
    partial(draw_setting, key="q", name="q"),
    "no method was run with two values of q and everything else the same",
)
