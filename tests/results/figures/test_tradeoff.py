"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import pytest

from fedpca.results.figures.accuracy import draw_accuracy
from fedpca.results.figures.tradeoff import draw_tradeoff
from tests.results.figures.made import caption, make


def test_few_methods_are_named_beside_their_points():
    figure = draw_tradeoff([make("fedavg", 0), make("fedavg", 1), make("fedpca-d", common=0.8)])
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("common accuracy (%)", "rare accuracy (%)")
    assert sorted(text.get_text() for text in axes.texts) == ["fedavg", "fedpca-d"]
    (point,) = [line for line in axes.lines if line.get_xdata() == pytest.approx([90.5])]
    assert point.get_ydata() == pytest.approx([61])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Baseline", "FedPCA"]
    assert "Of each seed the mean over its last rounds." in caption(figure)
    assert "Accuracy axes do not start at 0." in caption(figure)


MANY = ("fedavg", "qfedavg", "qffl", "fedce", "fedga", "fedism", "median", "rfa", "fedcorr", "fednoro")


def test_many_methods_are_numbered_and_a_crowd_is_enlarged():
    runs = [make(method, common=0.9 + i / 1000, rare=0.6 + i / 1000) for i, method in enumerate(MANY)]
    runs += [make("hnobs", common=0.5, rare=0.3), make("fedism+", common=0.9, rare=0.6)]  # far off; as fedavg
    whole, enlarged = (figure := draw_tradeoff(runs)).axes
    assert [text.get_text() for text in whole.texts] == ["12"]  # in the catalogue's order
    assert [text.get_text() for text in enlarged.texts] == ["1, 7", *(str(n) for n in range(2, 12) if n != 7)]
    assert enlarged.get_xlim()[0] > 85
    listed = [text.get_text() for text in figure.subfigs[1].legends[0].get_texts()]
    assert listed[0] == "1 fedavg"
    assert listed[-1] == "12 hnobs"


def test_labels_cover_neither_points_nor_each_other():
    runs = [make(method, common=0.9 + i % 3 / 500, rare=0.6 + i / 1000) for i, method in enumerate(MANY)]
    (axes,) = (figure := draw_tradeoff(runs)).axes
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    spots = axes.transData.transform([(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines])
    assert len(boxes) == 10
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert not any(box.contains(*spot) for spot in spots)


def test_one_seed_has_no_deviation():
    assert "One seed." in caption(draw_tradeoff([make("fedavg"), make("fedpca-d")]))
    assert "deviation" not in caption(draw_accuracy([make("fedavg"), make("fedpca-d")]))


def test_the_trade_off_needs_a_rare_test_group():
    assert draw_tradeoff([make(rare=None)]) is None


def test_the_legend_of_many_families_stays_within_the_figure():
    names = ["fedavg", "scaffold", "qfedavg", "median", "hnobs", "fedpca", "fedpca-wo-fairness", "fedavg+d", "local"]
    figure = draw_tradeoff([make(name, rare=0.5 + number / 50) for number, name in enumerate(names)])
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent() if figure.legends else figure.subfigs[0].legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
