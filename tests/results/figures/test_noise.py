"""The structure of the bar chart with and without mislabeled clients."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedpca.results.figures import FIGURES, write_figures
from fedpca.results.figures.noise import FIGURE, MAX_NOISES
from fedpca.results.read.runs import Run, by_scenario
from tests.results.figures.made import ABOUT, WRONG, caption, make, unknown

METHODS = ("fedavg", "qfedavg", "median", "fedism+fednoro", "fedpca", "fedavg+d")


def noisy(share: float, *given: str, **more: object) -> Run:
    """A run in which so many of the clients are mislabeled."""
    wrong = [str(i) for i in range(round(12 * share))]
    run = make(*given, about=ABOUT | {"mislabeled": wrong}, **more)
    noise = run.settings.noise.model_copy(update={"clients": share, "labels": 0.8 if share else 0.0})
    return replace(run, settings=run.settings.model_copy(update={"noise": noise}))


def test_each_method_has_a_bar_without_and_with_mislabeled_clients_in_the_order_of_the_tables():
    runs = [noisy(share, name, seed, rare=0.6 - share) for name in METHODS for share in (0.0, 0.25) for seed in (0, 1)]
    figure = FIGURE.draw(runs)
    (axes,) = figure.axes
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert shown == ["fedavg", "qfedavg", "median", "fedism+fednoro", "fedpca"], "no ablation, nobody with (D)"
    without, some = axes.containers[1], axes.containers[3]  # each after its error bars
    assert [bar.get_width() for bar in without] == pytest.approx([61.0] * 5)  # the mean of two seeds, 2 points apart
    assert [bar.get_width() for bar in some] == pytest.approx([36.0] * 5)
    heights = [bar.get_y() for pair in zip(without, some, strict=True) for bar in pair]
    assert heights == sorted(heights), "a method's bars lie together, the one without above"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "nobody mislabeled",
        f"{len(WRONG)} of 12 mislabeled, 80% of their labels",
    ]
    assert [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2][-2:] == pytest.approx([61, 36])
    assert caption(figure).startswith("made: digits, 12 clients, 2 rare.")
    assert "mean ± standard deviation over 2 seeds" in caption(figure)
    assert "Accuracy axes do not start at 0." in caption(figure)


def test_a_method_needs_both_and_the_truth_must_be_known():
    assert FIGURE.draw([noisy(0.0), noisy(0.0, "median")]) is None
    assert FIGURE.draw([noisy(0.0), noisy(0.25, "median")]) is None
    assert FIGURE.draw([make(about=unknown()), make("median", about=unknown())]) is None
    assert FIGURE.draw([noisy(0.0, "fedavg+d"), noisy(0.25, "fedavg+d")]) is None
    one = FIGURE.draw([noisy(0.0), noisy(0.25), noisy(0.25, "median")])
    assert [text.get_text() for text in one.axes[0].get_yticklabels()] == ["fedavg"]


def test_several_kinds_of_noise_stand_by_the_number_of_mislabeled_clients():
    shares = (0.75, 0.0, 0.5, 0.25, 1.0)
    words = [text.get_text() for text in FIGURE.draw([noisy(share) for share in shares]).legends[0].get_texts()]
    assert [text.partition(" mislabeled,")[0] for text in words[1:]] == ["3 of 12", "6 of 12", "9 of 12"]
    assert len(words) == 1 + MAX_NOISES


def test_scenarios_that_differ_in_noise_alone_are_drawn_as_one_figure(tmp_path: Path):
    assert FIGURES["noise"].across == {"noise"}
    runs = [noisy(share, name=name, weights=False) for name in ("one", "two") for share in (0.0, 0.25)]
    assert len(by_scenario(runs)) == 4
    assert [len(own) for own in by_scenario(runs, {"noise"})] == [2, 2]
    drawn = [each for each in write_figures(runs, tmp_path) if each.name.startswith("noise")]
    assert [path.name for each in drawn for path in each.files] == [
        f"noise-{name}.{end}" for name in ("one", "two") for end in ("png", "pdf")
    ]
