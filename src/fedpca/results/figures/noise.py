"""Worst accuracy of fair and robust methods, with and without mislabeled clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedpca.data.known import noise_words
from fedpca.methods.define import FAMILIES
from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run, by_scenario
from fedpca.runs.scores import Spread

NOBODY = "nobody mislabeled"
SHOWN = ("baseline", "fair", "robust", "fair + robust", "ours", "outside")  # families
LOOKS = (("#FFFFFF", ""), (style.VERMILION, ""), (style.ORANGE, "////"), (style.PURPLE, "...."))  # colour, hatching
MAX_NOISES = len(LOOKS) - 1
ROOM = 0.85  # of a method's height, for its bars


@dataclass(frozen=True)
class Bars:
    """One method: its worst accuracy in percent in each scenario in which it was run."""

    label: str
    family: str
    worst: dict[str, Spread]


@style.for_journals
def draw_noise(runs: Sequence[Run]) -> Figure | None:
    """A bar per scenario for each method that was run without mislabeled clients and with them."""
    scenes = _scenes([run for run in runs if run.family in SHOWN])
    if NOBODY not in scenes or len(scenes) < 2:
        return None
    methods = [bars for bars in _bars(scenes) if NOBODY in bars.worst and len(bars.worst) > 1]
    if not methods:
        return None
    metric = metric_words(runs[0].accuracy)
    places = _places(methods)
    figure = Figure(figsize=(4.8, 0.9 + 0.085 * (1 + len(scenes)) * (places[-1] + 1)), layout="constrained")
    axes = figure.subplots()
    for number, scene in enumerate(scenes):
        _draw(axes, methods, places, scene, number, len(scenes))
    _name(axes, methods, places)
    edges = [spread.mean + side * spread.std for bars in methods for spread in bars.worst.values() for side in (-1, 1)]
    axes.set(xlabel=f"worst {metric} (%)", xlim=style.pad_limits(edges))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    cut = style.not_from_zero(metric) if axes.get_xlim()[0] > 0 else ""
    style.note(figure, *_words(methods, scenes), cut)
    return figure


def _scenes(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs without mislabeled clients and those of the first few kinds of noise, by what tells them apart."""
    scenes = by_scenario([run for run in runs if run.about.get("mislabeled") is not None])
    scenes.sort(key=lambda own: len(own[0].about["mislabeled"]))
    named: dict[str, list[Run]] = {}
    for own in scenes:
        named.setdefault(_noise(own[0]) if own[0].about["mislabeled"] else NOBODY, own)
    return dict([*named.items()][: 1 + MAX_NOISES])


def _noise(run: Run) -> str:
    mislabeled = len(run.about["mislabeled"])
    return f"{mislabeled} of {len(run.about['clients']['id'])} mislabeled, {noise_words(run.settings.noise)}"


def _bars(scenes: dict[str, list[Run]]) -> list[Bars]:
    """Every method's bars, by family."""
    found: dict[str, Bars] = {}
    for scene, runs in scenes.items():
        for label, own in series.by_method(runs).items():
            bars = found.setdefault(label, Bars(label, own[0].family, {}))
            bars.worst[scene] = series.final(own).worst
    return sorted(found.values(), key=lambda bars: [*FAMILIES].index(bars.family))


def _places(methods: Sequence[Bars]) -> list[float]:
    """Where each method stands, from the top down; half a place more between families."""
    places: list[float] = []
    for number, bars in enumerate(methods):
        gap = 0.5 if number and bars.family != methods[number - 1].family else 0.0
        places.append((places[-1] + 1 if places else 0.0) + gap)
    return places


def _draw(axes: Axes, methods: Sequence[Bars], places: Sequence[float], scene: str, number: int, scenes: int) -> None:
    """One scenario's bars, and a line down from the baseline's, so that it is seen who falls below."""
    height, (colour, hatch) = ROOM / scenes, LOOKS[number]
    rows = [(place, bars.worst[scene]) for place, bars in zip(places, methods, strict=True) if scene in bars.worst]
    axes.barh(
        [place + (number - (scenes - 1) / 2) * height for place, _ in rows],
        [worst.mean for _, worst in rows],
        height,
        xerr=[worst.std for _, worst in rows],
        label=scene,
        color=colour,
        hatch=hatch,
        edgecolor="black",
        linewidth=0.5,
        error_kw={"elinewidth": 0.6},
    )
    for bars in (bars for bars in methods if bars.family == "baseline" and scene in bars.worst):
        line = style.REFERENCE.line if number else ":"
        axes.axvline(bars.worst[scene].mean, color="0.4", linestyle=line, linewidth=0.7, zorder=0)


def _name(axes: Axes, methods: Sequence[Bars], places: Sequence[float]) -> None:
    """Methods at the left, their families at the right."""
    axes.set_yticks(places, [style.wrap_label(bars.label) for bars in methods])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    for family, own in groupby(zip(methods, places, strict=True), key=lambda pair: pair[0].family):
        middle = [place for _, place in own]
        text = FAMILIES[family].replace(" + ", " +\n")
        axes.text(1.01, sum(middle) / len(middle), text, transform=axes.get_yaxis_transform(), va="center", fontsize=7)


def _words(methods: Sequence[Bars], scenes: dict[str, list[Run]]) -> list[str]:
    """The small print: what was run, which seeds, and what the lines are."""
    first = next(iter(scenes.values()))[0]
    rare = len(first.about.get("rare") or [])
    shown = {bars.label for bars in methods}
    seeds = {
        f"{label}, {scene}": own
        for scene, runs in scenes.items()
        for label, own in series.by_method(runs).items()
        if label in shown
    }
    return [
        f"{first.settings.name}: {first.about['dataset']}, {len(first.about['clients']['id'])} clients, {rare} rare.",
        style.LAST,
        series.seeds(seeds, "bars and their ends"),
        "Lines: the baseline.",
    ]


FIGURE = FigureKind(
    "noise",
    draw_noise,
    "no method was run with and without mislabeled clients and everything else the same",
    across=frozenset({"noise"}),
)
