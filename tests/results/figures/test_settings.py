"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import pytest

from fedpca.results.figures.q import FIGURE as Q
from fedpca.results.figures.warmup import FIGURE as WARMUP
from tests.results.figures.made import make, names


def test_the_effect_of_q():
    runs = [make("fedpca-d", seed, q=q, rare=0.6 + q / 100) for q in (2.0, 0.5, 5.0) for seed in (0, 1)]
    worst, average = Q.draw([*runs, make("fedpca-hs"), make("fedavg")]).axes
    assert worst.get_xlabel() == "q"
    assert names(average) == ["fedpca-d"]
    line = worst.lines[0]
    assert line.get_xdata() == pytest.approx([0.5, 2, 5])
    assert line.get_ydata() == pytest.approx([61.5, 63, 66])  # the mean of the seeds, 2 points apart
    assert worst.get_xticks() == pytest.approx([0.5, 2, 5])
    assert worst.get_xscale() == "symlog"


def test_a_sweep_needs_two_values_with_everything_else_the_same():
    assert Q.draw([make("fedpca-d", q=1.0), make("fedpca-hs", q=2.0)]) is None
    assert Q.draw([make("fedpca-d", q=1.0), make("fedpca-d", q=2.0, weight_smoothing=0.9)]) is None
    two = [make("fedpca-d", q=q, weight_smoothing=0.9) for q in (1.0, 2.0)]
    assert names(Q.draw(two).axes[1]) == ["fedpca-d\n(weight_smoothing=0.9)"]


def test_the_effect_of_the_warm_up():
    figure = WARMUP.draw([make("fedpca-d", warmup=warmup) for warmup in (0, 5, 10)])
    assert figure.axes[0].get_xlabel() == "rounds of warm-up"
    assert figure.axes[0].get_xscale() == "linear"
    assert figure.axes[0].lines[0].get_xdata() == pytest.approx([0, 5, 10])
