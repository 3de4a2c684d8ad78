"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fedpca.parts.server.identify import ThreeGroups
from fedpca.results.figures.plane import components, draw_plane, snapshot
from fedpca.results.figures.shared.style import KINDS
from tests.results.figures.made import CLIENTS, caption, kind, make, unknown


def places(axes) -> int:
    return sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() != "None")


def test_the_plane_has_a_panel_per_method_that_reports_dispersion():
    figure = draw_plane([make("fedavg"), make("fedpca-d", 1), make("fedpca-d", 0), make("fedpca-hs")])
    assert [axes.get_title() for axes in figure.axes] == ["fedpca-d, round 14", "fedpca-hs, round 14"]
    assert figure.axes[0].get_ylabel() == "dispersion (log)"
    assert all(axes.get_xlabel() == "loss" for axes in figure.axes)
    assert places(figure.axes[0]) == 12
    assert len(figure.axes[0].lines) == 3 + 3 * 2  # kinds of clients, and three components at one and two deviations
    assert "Ellipses: 1 and 2 standard deviations" in caption(figure)
    assert "No ellipses" not in caption(figure)


def test_the_fill_is_the_judged_group_and_the_shape_the_truth():
    (axes,) = draw_plane([make("fedpca-d", mistake="5")]).axes
    (accused,) = [line for line in axes.lines if line.get_marker() != "None" and len(line.get_xdata()) == 1]
    assert accused.get_marker() == KINDS["common"].marker
    assert accused.get_markerfacecolor()[:3] == to_rgb(KINDS["mislabeled"].colour)
    assert accused.get_markeredgecolor()[:3] == to_rgb(KINDS["common"].colour)


def test_the_ellipses_are_those_of_the_groups_in_the_units_of_the_plane():
    seen = snapshot(make("fedpca-d"))
    for part in seen.components:
        own = np.array([seen.places[c] for c in CLIENTS if kind(c) == part.group])
        assert part.mean == pytest.approx(own.mean(axis=0), abs=1e-6)
        away = np.linalg.solve(np.linalg.cholesky(part.covariance), (part.outline(2) - part.mean).T)
        assert np.linalg.norm(away, axis=0) == pytest.approx(np.full(100, 2.0))
        if len(own) > 2:  # of two points the covariance has one direction, and the ridge
            assert part.covariance == pytest.approx(np.cov(own.T, bias=True), abs=1e-4)
    assert {part.group for part in seen.components} == {"common", "rare", "mislabeled"}


def test_the_mixture_is_that_of_the_methods_own_settings():
    full, round_ones = (
        make("fedpca-d"),
        make("fedpca-d", identify={"mixture": {"covariance": "spherical", "scale": "none"}}),
    )
    assert all(abs(part.covariance[0, 1]) > 1e-6 for part in snapshot(full).components if part.group == "common")
    for part in snapshot(round_ones).components:
        assert part.covariance == pytest.approx(part.covariance[0, 0] * np.eye(2))


def test_a_rule_without_a_mixture_has_no_ellipses_and_the_caption_says_so():
    (axes,) = (figure := draw_plane([make("fedpca-d-auto")])).axes
    assert places(axes) == sum(len(line.get_xdata()) for line in axes.lines) == 12
    assert "No ellipses, since no mixture judged in this round: fedpca-d-auto." in caption(figure)


def test_the_plane_of_a_chosen_round():
    runs = [make("fedpca-d"), make("fedpca-hs", played=12)]
    titles = [axes.get_title() for axes in draw_plane(runs, round=12).axes]
    assert titles == ["fedpca-d, round 12", "fedpca-hs, round 12"]
    assert [axes.get_title() for axes in draw_plane(runs, round=13).axes] == ["fedpca-d, round 13"]
    assert draw_plane(runs, round=10) is None  # warm-up


def test_who_did_not_report_in_this_round_is_pale_and_not_in_the_mixture():
    run = make("fedpca-d")
    for column in ("loss", "dispersion"):
        run.rounds[-1]["clients"][column][4] = run.rounds[-2]["clients"][column][4]
    seen = snapshot(run)
    assert seen.stale == {"4"}
    common = next(part for part in seen.components if part.group == "common")
    own = [seen.places[c] for c in CLIENTS if kind(c) == "common" and c != "4"]
    assert common.mean == pytest.approx(np.mean(own, axis=0), abs=1e-6)
    assert "Pale: reported in an earlier round." in caption(draw_plane([run]))


def test_a_client_that_predicts_one_class_is_named_rather_than_drawn():
    run = make("fedpca-d")
    run.rounds[-1]["clients"]["dispersion"][11] = float(np.log(1e-12))
    figure = draw_plane([run])
    assert figure.axes[0].get_ylim()[0] > -5
    assert "Not on the plane, all predictions in one class: 1 of fedpca-d." in caption(figure)


def test_the_plane_where_nobody_knows_the_truth():
    figure = draw_plane([make("fedpca-d", about=unknown())])
    assert "the truth is not known" in caption(figure)
    assert not any("truly" in text.get_text() for text in figure.legends[0].get_texts())


def test_too_few_points_for_a_mixture():
    assert (
        components(
            ThreeGroups(
                starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
            ),
            {"0": {"loss": 1.0, "dispersion": 1.0}},
        )
        == ()
    )


def test_clients_are_named_and_of_many_those_judged_mislabeled():
    (axes,) = draw_plane([make("fedpca-d")]).axes
    assert sorted(text.get_text() for text in axes.texts) == sorted(CLIENTS)
    run, ids = make("fedpca-d", about=unknown()), [f"a rather long name {i}" for i in range(36)]
    columns = run.rounds[-1]["clients"]
    many = {name: columns[name] * 3 for name in ("loss", "dispersion", "group", "weight")}
    run.rounds[-1]["clients"] = {"id": ids, **many}
    (axes,) = (figure := draw_plane([run])).axes
    assert len(axes.texts) == many["group"].count("mislabeled") == 9
    assert {text.get_text() for text in axes.texts} == {"a rather long…"}
    assert "Of more than 20 clients" in caption(figure)
