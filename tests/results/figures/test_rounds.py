"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import numpy as np
import pytest

from fedpca.results.figures.accuracy import draw_accuracy
from fedpca.results.figures.shared.style import pad_limits
from fedpca.results.figures.weights import draw_weights
from tests.results.figures.made import ABOUT, caption, make, names, unknown


def test_accuracy_has_worst_and_average_with_a_band_per_method():
    figure = draw_accuracy([make("fedavg", seed) for seed in (0, 1)] + [make("fedpca-d", common=0.8, rare=0.7)])
    worst, average = figure.axes
    assert (worst.get_ylabel(), average.get_ylabel()) == ("worst accuracy (%)", "average accuracy (%)")
    assert worst.get_xlabel() == "round"
    assert names(average) == ["fedavg", "fedpca-d"]
    assert worst.lines[0].get_ydata() == pytest.approx(np.full(14, 61))  # of 60 and 62
    assert average.lines[1].get_ydata() == pytest.approx(np.full(14, 75))
    band = worst.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((60, 62))
    assert "mean ± standard deviation over 1 to 2 seeds" in caption(figure)


def test_accuracy_axes_that_leave_out_zero_say_so_and_exaggerate_nothing():
    figure = draw_accuracy([make(common=0.9, rare=0.6)])
    low, high = figure.axes[0].get_ylim()
    assert low <= 60 <= high
    assert high - low >= 5
    assert "Accuracy axes do not start at 0" in caption(figure)
    assert draw_accuracy([make(common=0.03, rare=0.01)]).axes[0].get_ylim()[0] == 0


@pytest.mark.parametrize(("values", "limits"), [([50, 90], (48, 92)), ([70, 71], (68, 73)), ([99, 99], (96.5, 100))])
def test_limits_have_a_margin_and_stay_within_what_is_possible(values, limits):
    assert pad_limits(values) == pytest.approx(limits)


def test_many_methods_are_spread_over_rows_by_family_with_fedavg_in_each():
    fair = ("qfedavg", "qffl", "fedce", "fedga", "fedism")
    methods = ("fedavg", *fair, "median", "rfa", "fedpca-d", "fedavg+d")
    figure = draw_accuracy([make(method, common=0.9 + i / 1000) for i, method in enumerate(methods)])
    titles = [axes.get_title(loc="left") for axes in figure.axes[::2]]
    assert titles == ["Fair", "Robust", "FedPCA", "With (D)"]
    assert names(figure.axes[1]) == ["fedavg", *fair]
    assert names(figure.axes[3]) == ["fedavg", "median", "rfa"]
    assert len({axes.get_ylim() for axes in figure.axes[::2]}) == 1


def test_lines_differ_in_more_than_colour():
    methods = ("qfedavg", "qffl", "fedce", "fedga", "fedism", "median", "rfa")
    axes = draw_accuracy([make(method, common=0.9 + i / 1000) for i, method in enumerate(methods)]).axes[0]
    assert len({line.get_color() for line in axes.lines}) == 7
    assert len({line.get_marker() for line in axes.lines}) == 7


def test_settings_are_ordered_by_value():
    figure = draw_accuracy([make("fedpca-d", q=q, common=0.9 + q / 1000) for q in (10.0, 2.0, 0.5)])
    assert [name.partition("q=")[2] for name in names(figure.axes[1])] == ["0.5)", "2.0)", "10.0)"]


def test_a_run_under_way_counts_where_it_is_and_is_named():
    figure = draw_accuracy([make("fedavg", 0), make("fedavg", 1, played=3)])
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx([61] * 3 + [60] * 11)
    assert "Under way, so over fewer seeds or rounds: fedavg." in caption(figure)


def test_rounds_that_were_not_tested_are_passed_over():
    run = make(played=4)
    run.rounds[1]["groups"] = None
    assert draw_accuracy([run]).axes[0].lines[0].get_xdata().tolist() == [1, 3, 4]
    for line in run.rounds:
        line["groups"] = None
    assert draw_accuracy([run]) is None


def test_nothing_of_fedpca_leaves_the_axes():
    runs = [make("fedpca-hs"), make("fedavg")]
    for run in runs:
        run.rounds[5] = {**run.rounds[5], "groups": {"common": {"acc": 0.9}, "rare": {"acc": 0.3}}}
    figure = draw_accuracy(runs)
    assert figure.axes[0].get_ylim()[0] < 30
    assert "Early rounds of methods other than FedPCA may lie below them." in caption(figure)
    assert draw_accuracy(runs[1:]).axes[0].get_ylim()[0] > 50


def test_identical_curves_share_a_line_and_a_label():
    figure = draw_accuracy([make("fedavg"), make("rfa"), make("fedpca-d", common=0.8)])
    assert names(figure.axes[1]) == ["fedavg =\nrfa", "fedpca-d"]
    assert len(figure.axes[0].lines) == 2


def test_weights_start_at_zero_and_methods_without_them_are_named():
    figure = draw_weights([make("fedavg", 0), make("fedavg", 1), make("median", weights=False)])
    rare, wrong = figure.axes
    assert (rare.get_ylabel(), wrong.get_ylabel()) == ("weight of the rare", "weight of the mislabeled")
    assert rare.get_ylim()[0] == wrong.get_ylim()[0] == 0
    assert rare.lines[0].get_ydata() == pytest.approx(np.full(14, 0.15))
    assert rare.lines[-1].get_ydata() == pytest.approx([2 / 12, 2 / 12])  # their share of the images
    assert names(wrong) == ["fedavg"]
    assert "Without weights, so left out: median." in caption(figure)


def test_weights_of_a_group_that_does_not_exist_are_not_drawn():
    (axes,) = draw_weights([make(about={**ABOUT, "mislabeled": []})]).axes
    assert axes.get_ylabel() == "weight of the rare"
    assert draw_weights([make(about=unknown())]) is None
    assert draw_weights([make(weights=False)]) is None
