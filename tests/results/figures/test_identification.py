"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fedpca.results.figures.identification import COLOURS, draw_identification, rank_clients, shares
from tests.results.figures.made import ABOUT, CLIENTS, WRONG, caption, make, unknown


def names(axes) -> list[str]:
    return [text.get_text() for text in axes.get_yticklabels()]


def shown(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_shares_are_those_of_seeds_and_missing_where_nobody_is_judged():
    found = shares([make("fedpca-d", 0), make("fedpca-d", 1, mistake="5")], CLIENTS)
    assert found.shape == (12, 14, 3)
    assert np.isnan(found[:, :10]).all()  # warm-up
    assert found[0, 10:] == pytest.approx(np.tile([1, 0, 0], (4, 1)))  # mislabeled
    assert found[10, 10:] == pytest.approx(np.tile([0, 1, 0], (4, 1)))  # rare
    assert found[5, 10:] == pytest.approx(np.tile([0.5, 0, 0.5], (4, 1)))  # one seed of two


def test_a_panel_per_method_that_judges_with_a_cell_for_each_client_and_round():
    figure = draw_identification([make("fedavg"), make("fedpca-d"), make("fedpca-hs", mistake="5")])
    assert [axes.get_title() for axes in figure.axes] == ["fedpca-d", "fedpca-hs"]
    image = figure.axes[0].images[0]
    assert image.get_array().shape == (12, 14, 3)
    assert image.get_array()[0, 0].tolist() == pytest.approx((1, 1, 1))  # not judged yet
    assert image.get_array()[0, 13].tolist() == pytest.approx(to_rgb(COLOURS["mislabeled"]))
    assert list(image.get_extent()) == [0.5, 14.5, 11.5, -0.5]  # a cell stands on its round
    assert figure.axes[0].get_xlabel() == "round"
    assert "One seed." in caption(figure)
    assert "means over 2 seeds" in caption(draw_identification([make("fedpca-d", seed) for seed in (0, 1)]))


def test_names_say_the_truth_where_it_is_known():
    figure = draw_identification([make("fedpca-d", mistake="5")])
    assert names(figure.axes[0])[:6] == ["▲ 0", "▲ 1", "▲ 2", "■ 10", "■ 11", "5"]
    assert shown(figure)[-2:] == ["truly mislabeled", "truly rare"]


def test_where_nobody_knows_the_truth_those_judged_mislabeled_come_first():
    figure = draw_identification([make("fedpca-d", mistake="5", about=unknown())])
    assert sorted(names(figure.axes[0])[:4]) == sorted([*WRONG, "5"])
    assert shown(figure) == ["judged mislabeled", "judged rare", "judged common", "not judged"]
    assert "truly" not in caption(figure)


def test_of_many_clients_some_have_a_row_and_the_caption_says_so():
    ids = [f"site-{i}" for i in range(90)]
    run = make("fedpca-d", about={**unknown(), "clients": {"id": ids, "size": [1] * 90}})
    for line in run.rounds[10:]:
        groups = ["mislabeled" if i == 77 else "common" for i in range(90)]
        line["clients"] = {"id": ids, "loss": None, "dispersion": None, "group": groups, "weight": None}
    for line in run.rounds[:10]:
        line["clients"] = {"id": ids, "loss": None, "dispersion": None, "group": None, "weight": None}
    assert rank_clients({"fedpca-d": [run]}, {})[0] == "site-77"
    figure = draw_identification([run])
    assert len(names(figure.axes[0])) == 40
    assert "Shown are 40 of 90 clients" in caption(figure)


def test_identification_needs_a_method_that_has_judged():
    assert draw_identification([make("fedavg", about=ABOUT)]) is None
    assert draw_identification([make("fedpca-d", played=10)]) is None  # warm-up
