"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import numpy as np
import pytest

from fedpca.results.figures.identification import draw_identification, tally
from tests.results.figures.made import CLIENTS, kind, make, unknown


def test_identification_counts_of_a_round():
    kinds = {c: kind(c) for c in CLIENTS} | {"9": "rare and mislabeled"}
    groups = ["mislabeled" if c in ("0", "1", "5", "10", "9") else "common" for c in CLIENTS]
    line = {"clients": {"id": CLIENTS, "group": groups}}
    assert list(tally(line, kinds).values()) == [3, 1, 1, 1]
    assert tally({"clients": {"id": CLIENTS, "group": None}}, kinds) is None


def test_identification_stacks_the_guilty_upwards_and_the_innocent_downwards():
    figure = draw_identification([make("fedavg"), make("fedpca-d", 0), make("fedpca-d", 1, mistake="5")])
    (axes,) = figure.axes
    right, missed, common, rare = (patch.get_data() for patch in axes.patches)
    assert right.values == pytest.approx([3, 3, 3, 3])  # four rounds after the warm-up
    assert right.edges.tolist() == [10.5, 11.5, 12.5, 13.5, 14.5]
    assert missed.values - missed.baseline == pytest.approx(np.zeros(4))
    assert common.values == pytest.approx(np.full(4, -0.5))
    assert rare.values == pytest.approx(common.values)
    assert axes.get_xlim() == (0.5, 14.5)
    low, high = axes.get_ylim()
    assert low <= -1
    assert high > 3
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["rightly judged mislabeled", "missed", "wrongly: common", "wrongly: rare"]
    assert [axes.yaxis.get_major_formatter()(y) for y in (-2.0, 3.0)] == ["2", "3"]


def test_identification_needs_the_truth_and_a_method_that_judges():
    assert draw_identification([make("fedpca-d", about=unknown())]) is None
    assert draw_identification([make("fedavg")]) is None
    assert draw_identification([make("fedpca-d", played=10)]) is None  # warm-up
