"""The effect of the rounds before anybody is judged."""

from functools import partial

from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.sweeps import draw_setting

FIGURE = FigureKind(
    "warmup",
    partial(draw_setting, key="warmup", name="rounds of warm-up"),
    "no method was run with two values of warmup and everything else the same",
)
