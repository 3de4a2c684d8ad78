"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.colors import to_rgb
from safetensors.numpy import save_file

from fedpca.errors import RunError, UserError
from fedpca.parts.server.identify import ThreeGroups
from fedpca.results import figures
from fedpca.results.figures import FIGURES, figure_names, write_figures
from fedpca.results.figures.accuracy import draw_accuracy
from fedpca.results.figures.features import draw_features, embed
from fedpca.results.figures.identification import draw_identification, tally
from fedpca.results.figures.plane import components, draw_plane, snapshot
from fedpca.results.figures.q import FIGURE as Q
from fedpca.results.figures.shared.style import KINDS, pad_limits
from fedpca.results.figures.shared.write import render, slugs
from fedpca.results.figures.tradeoff import draw_tradeoff
from fedpca.results.figures.warmup import FIGURE as WARMUP
from fedpca.results.figures.weights import draw_weights
from fedpca.results.read.runs import Run, find_runs
from fedpca.runs.check import check_experiment, one_run
from fedpca.settings import registry
from fedpca.settings.toml import write_table

CLIENTS = [str(i) for i in range(12)]
RARE, WRONG = ("10", "11"), ("0", "1", "2")
ABOUT = {
    "dataset": "digits",
    "classes": ["zero", "one", "$2$"],
    "clients": {"id": CLIENTS, "size": [10] * 12},
    "rare": list(RARE),
    "mislabeled": list(WRONG),
}


def kind(client: str) -> str:
    return "rare" if client in RARE else "mislabeled" if client in WRONG else "common"


def columns(method: str, number: int, warmup: int, mistake: str | None) -> dict:
    """What FedPCA records of clients that lie in three clear groups; a mistake is a common client judged mislabeled."""
    if not method.startswith("fedpca") or number <= warmup:
        return {"id": CLIENTS, "loss": None, "dispersion": None, "group": None, "weight": [1 / 12] * 12}
    rng = np.random.default_rng(number)
    centres = {"common": (0.2, 2.0), "rare": (0.6, 0.5), "mislabeled": (3.0, 2.1)}
    places = np.array([centres[kind(c)] for c in CLIENTS]) + rng.normal(0, 0.05, (12, 2))
    loss, dispersion = places.T.tolist()
    groups = ["mislabeled" if c == mistake else kind(c) for c in CLIENTS]
    return {"id": CLIENTS, "loss": loss, "dispersion": dispersion, "group": groups, "weight": [1 / 12] * 12}


def make(
    method: str = "fedavg",
    seed: int = 0,
    played: int = 14,
    common: float = 0.9,
    rare: float | None = 0.6,
    weights: bool = True,
    mistake: str | None = None,
    folder: Path = Path("nowhere"),
    about: dict = ABOUT,
    name: str = "made",
    **settings: object,
) -> Run:
    """A run of 14 rounds, of which so many are played; FedPCA warms up for ten."""
    table = {"name": name, "rounds": 14, "methods": [method], "seeds": [seed], "method": {method: settings}}
    table["noise"] = {"clients": 0.25, "labels": 0.8}
    groups = {"common": {"acc": common + 0.01 * seed}} | ({} if rare is None else {"rare": {"acc": rare + 0.02 * seed}})
    rounds = [
        {
            "round": number,
            "groups": groups,
            "clients": columns(method, number, int(settings.get("warmup", 10)), mistake),
            "weights": {"rare": 0.1 * (1 + seed), "mislabeled": 0.3} if weights else None,
            "left_out": {},
        }
        for number in range(1, played + 1)
    ]
    return Run(folder, one_run(check_experiment(table, "made"), method, seed), about, rounds)


def unknown() -> dict:
    return {key: value for key, value in ABOUT.items() if key not in ("rare", "mislabeled")}


def caption(figure) -> str:
    return figure.get_supxlabel().replace("\n", " ")


def names(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


# --- the plane


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


# --- over the rounds


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
    figure = draw_accuracy([make(method) for method in ("fedavg", *fair, "median", "rfa", "fedpca-d", "fedavg+d")])
    titles = [axes.get_title(loc="left") for axes in figure.axes[::2]]
    assert titles == ["Fair", "Robust", "FedPCA", "With (D)"]
    assert names(figure.axes[1]) == ["fedavg", *fair]
    assert names(figure.axes[3]) == ["fedavg", "median", "rfa"]
    assert len({axes.get_ylim() for axes in figure.axes[::2]}) == 1


def test_lines_differ_in_more_than_colour():
    axes = draw_accuracy([make(m) for m in ("qfedavg", "qffl", "fedce", "fedga", "fedism", "median", "rfa")]).axes[0]
    assert len({line.get_color() for line in axes.lines}) == 7
    assert len({line.get_marker() for line in axes.lines}) == 7


def test_settings_are_ordered_by_value():
    figure = draw_accuracy([make("fedpca-d", q=q) for q in (10.0, 2.0, 0.5)])
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


# --- identification


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


# --- settings


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


# --- the trade-off


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


# --- features


def save_features(folder: Path, count: int = 30) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    features = (10 * np.eye(3)[labels] + rng.normal(size=(count, 3))).astype(np.float32)
    clients = np.arange(count) % 12
    tensors = {"features": features, "label": labels, "predicted": labels, "client": clients}
    folder.mkdir(exist_ok=True)
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, folder / "features.safetensors")


def test_features_show_kinds_of_clients_and_class_centroids(tmp_path: Path):
    save_features(tmp_path)
    figure = draw_features([make("fedpca-d", folder=tmp_path), make("fedavg")])
    (axes,) = figure.axes
    assert axes.get_title() == "fedpca-d, seed 0"
    points = [line for line in axes.lines if line.get_markersize() == 2]
    centroids = [line for line in axes.lines if line.get_markersize() == 5.5]
    assert sum(len(line.get_xdata()) for line in points) == 30
    pairs = {(kind(str(i % 12)), i % 3) for i in range(30)}
    assert len(centroids) == len(pairs)
    assert sorted(text.get_text() for text in axes.texts) == ["$2$", "one", "zero"]  # no formula
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["common clients", "rare clients", "mislabeled clients", "centroid"]
    assert "Kind of client by the truth" in caption(figure)


def test_kinds_are_as_judged_where_the_truth_is_not_known(tmp_path: Path):
    save_features(tmp_path)
    judged = draw_features([make("fedpca-d", folder=tmp_path, about=unknown())])
    assert "by the method's last judgement" in caption(judged)
    assert "rare clients" in [text.get_text() for text in judged.legends[0].get_texts()]
    nobody = draw_features([make("fedavg", folder=tmp_path, about=unknown())])
    assert [text.get_text() for text in nobody.legends[0].get_texts()] == ["other clients", "centroid"]


def test_the_map_of_features_repeats_and_keeps_classes_apart():
    features = np.repeat(10 * np.eye(3), 10, axis=0) + np.random.default_rng(0).normal(size=(30, 3))
    places = embed(features)
    assert (places == embed(features)).all()
    centres = places.reshape(3, 10, 2).mean(axis=1)
    within = np.abs(places.reshape(3, 10, 2) - centres[:, None]).max()
    assert min(np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (0, 2), (1, 2))) > within


def test_features_that_cannot_be_used(tmp_path: Path):
    (tmp_path / "features.safetensors").write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"features\.safetensors cannot be read"):
        draw_features([make(folder=tmp_path)])
    save_features(tmp_path, count=3)
    assert draw_features([make(folder=tmp_path)]) is None
    assert draw_features([make()]) is None


# --- files

ONLY_ACCURACY = {"weights": False, "rare": None}


def test_every_figure_is_written_or_left_out_with_its_reason(tmp_path: Path):
    before = dict(rcParams)
    drawn = write_figures([make("fedavg", 0), make("median", weights=False, played=3)], tmp_path / "figures")
    assert [each.name for each in drawn] == list(FIGURES)
    written = {each.name for each in drawn if each.files}
    assert written == {"weights", "accuracy", "tradeoff"}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{n}.{end}" for n in written for end in ("png", "pdf")
    }
    assert (tmp_path / "figures/accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figures/accuracy.pdf").read_bytes().startswith(b"%PDF")
    told = {each.name: each.line() for each in drawn}
    assert told["plane"].startswith("plane: not drawn, no run has reported dispersions")
    assert "evaluation.features" in told["features"]
    assert "two values of q" in told["q"]
    assert str(tmp_path / "figures/weights.pdf") in told["weights"]
    assert dict(rcParams) == before, "drawing must leave matplotlib's settings alone"


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_the_same_runs_give_the_same_bytes(form: str):
    first, second = (render(draw_plane([make("fedpca-d")]), form) for _ in range(2))
    assert first == second


def test_files_of_several_scenarios_are_told_apart(tmp_path: Path):
    drawn = write_figures([make(name=name, **ONLY_ACCURACY) for name in ("Two sites", "three")], tmp_path)
    assert [path.name for each in drawn for path in each.files] == [
        f"accuracy-{name}.{end}" for name in ("two-sites", "three") for end in ("png", "pdf")
    ]
    assert slugs(["a", "b", "a"]) == ["-a-1", "-b", "-a-2"]


def test_the_round_of_the_plane_is_passed_on(tmp_path: Path):
    drawn = write_figures([make("fedpca-d", played=10, **ONLY_ACCURACY)], tmp_path, round=3)
    reasons = {each.name: each.reason for each in drawn}
    assert reasons["plane"].startswith("in round 3, no run has reported dispersions")
    assert reasons["accuracy"] == ""
    assert not reasons["q"].startswith("in round")


def test_a_file_in_the_place_of_the_folder(tmp_path: Path):
    (tmp_path / "figures").write_text("")
    with pytest.raises(UserError, match=r"figures is a file: name another"):
        write_figures([make()], tmp_path / "figures")


def test_figures_of_run_folders_come_without_torch(tmp_path: Path):
    run = make("fedpca-d", played=12, **ONLY_ACCURACY)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/settings.toml").write_text(write_table(run.settings))
    (tmp_path / "run/about.json").write_text(json.dumps(run.about))
    (tmp_path / "run/rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run.rounds))
    save_features(tmp_path / "run")
    assert len(find_runs([tmp_path])) == 1
    code = (
        "import sys; from pathlib import Path; from fedpca.results.figures import write_figures;"
        "from fedpca.results.read.runs import find_runs;"
        f"drawn = write_figures(find_runs([Path({str(tmp_path)!r})]), Path({str(tmp_path / 'out')!r}));"
        "print(sum(bool(each.files) for each in drawn), 'torch' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4 False False\n"


def test_without_matplotlib_the_message_names_the_extra():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\n"
        "from fedpca.errors import UserError\n"
        "from fedpca.results.figures import figure_names, write_figures\n"
        "print(*figure_names())\n"
        "try:\n    write_figures([], Path('figures'))\nexcept UserError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, message = done.stdout.splitlines()
    assert names.split() == figure_names()
    assert "matplotlib" in message
    assert "fedpca[results]" in message


def test_a_figure_is_one_file_named_as_its_figure():
    files = {path.stem for path in Path(figures.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(FIGURES) == files
    assert all(FIGURES[name].name == name for name in FIGURES)


def test_a_figure_of_another_package_is_drawn_with_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere.py").write_text(
        "from matplotlib.figure import Figure\n"
        "from fedpca.results.figures import FigureKind\n"
        "def draw(runs):\n    return Figure() if len(runs) > 1 else None\n"
        "FIGURE = FigureKind('extra', draw, 'there is only one run')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        registry, "installed", lambda group: {"extra": "elsewhere:FIGURE"} if "figures" in group else {}
    )
    assert figure_names()[-1] == "extra"
    *_, one = write_figures([make(**ONLY_ACCURACY)], tmp_path / "one")
    assert one.line() == "extra: not drawn, there is only one run"
    *_, two = write_figures([make(**ONLY_ACCURACY), make(seed=1, **ONLY_ACCURACY)], tmp_path / "two")
    assert [path.name for path in two.files] == ["extra.png", "extra.pdf"]
