"""What the final model sees: features by kind of client, brought to the plane by t-SNE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedpca.errors import RunError
from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.labels import name_points
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.read.clients import truth
from fedpca.results.read.runs import Run
from fedpca.runs.folder import FEATURES

MAX_IMAGES = 2000  # images per panel: the time that t-SNE takes grows faster than their number
NOT_JUDGED = "other"
LOOKS = {**style.KINDS, NOT_JUDGED: style.UNKNOWN}
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SavedFeatures:
    """Images of one run as its final model sees them."""

    features: Floats  # (M, d) before the last layer
    label: Ints  # (M,) as given by the owner
    predicted: Ints  # (M,)
    client: Ints  # (M,) place in about["clients"]["id"]


@dataclass(frozen=True)
class FeatureMap:
    """Images of one run on the plane."""

    title: str
    places: Floats  # (M, 2)
    kinds: NDArray[np.str_]  # (M,) of the client
    predicted: NDArray[np.str_]  # (M,) class
    of: int  # images that the run saved

    def centroids(self) -> list[tuple[str, tuple[float, float]]]:
        """The mean place of each kind and predicted class."""
        pairs = sorted({*zip(self.kinds.tolist(), self.predicted.tolist(), strict=True)})
        return [(kind, self._mean((self.kinds == kind) & (self.predicted == name))) for kind, name in pairs]

    def classes(self) -> list[tuple[float, float, str]]:
        """Where the bulk of each predicted class is, and its name."""
        names = np.unique(self.predicted).tolist()
        return [(*np.median(self.places[self.predicted == name], axis=0).tolist(), name) for name in names]

    def _mean(self, rows: NDArray[np.bool_]) -> tuple[float, float]:
        x, y = self.places[rows].mean(axis=0).tolist()
        return x, y


@style.for_journals
def draw_features(runs: Sequence[Run]) -> Figure | None:
    """A panel per method that saved features, of its lowest seed that did."""
    saved = series.by_method([run for run in runs if (run.folder / FEATURES).exists()])
    maps = [shown for own in saved.values() if (shown := feature_map(own[0])) is not None]
    if not maps:
        return None
    columns = min(len(maps), 2)
    rows = -(-len(maps) // columns)
    figure, grid = style.canvas(rows, columns, style.WIDTH if columns > 1 else 4.4, 0.8 + 3.2 * rows)
    cells = [axes for row in grid for axes in row]
    for axes, shown in zip(cells, maps, strict=False):
        _panel(axes, shown)
    style.finish_grid(grid, len(maps), "", "")
    _legend(figure, {kind for shown in maps for kind in shown.kinds})
    style.note(figure, series.scenario(runs), *_explained(runs[0], maps))
    for axes, shown in zip(cells, maps, strict=False):
        name_points(figure, axes, shown.classes(), [place for _, place in shown.centroids()])
    return figure


def feature_map(run: Run, most: int = MAX_IMAGES) -> FeatureMap | None:
    """A run's images on the plane, at most so many; None if fewer than four have finite features."""
    seen = read_features(run.folder)
    usable = np.flatnonzero(np.isfinite(seen.features).all(axis=1))
    if len(usable) < 4:
        return None
    if len(usable) > most:
        usable = np.sort(np.random.default_rng(0).choice(usable, most, replace=False))
    ids, kinds = run.about["clients"]["id"], kinds_of(run)
    return FeatureMap(
        f"{run.label()}, seed {run.seed}",
        embed(seen.features[usable]),
        np.array([kinds[ids[client]] for client in seen.client[usable]]),
        np.array([run.about["classes"][number] for number in seen.predicted[usable]]),
        of=len(seen.client),
    )


def read_features(folder: Path) -> SavedFeatures:
    """What a run saved."""
    try:
        return SavedFeatures(**load_file(folder / FEATURES))
    except (SafetensorError, OSError, TypeError) as error:
        raise RunError(f"{folder / FEATURES} cannot be read: {error}") from None


def embed(features: Floats) -> Floats:
    """Places (M, 2) by t-SNE, the same for the same features; perplexity 30, less for few images.

    On one thread: on several the sums, and so the picture, would depend on how many there are.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        places: Floats = TSNE(2, perplexity=min(30.0, (len(features) - 1) / 3), random_state=0).fit_transform(features)
    return places


def kinds_of(run: Run) -> dict[str, str]:
    """What each client is: in truth where that is known, else as the method judged it in the end."""
    clients = run.rounds[-1]["clients"]
    judged = clients.get("group") or [None] * len(clients["id"])
    return truth(run) or {c: group or NOT_JUDGED for c, group in zip(clients["id"], judged, strict=True)}


def _panel(axes: Axes, shown: FeatureMap) -> None:
    for kind, look in LOOKS.items():
        places = shown.places[shown.kinds == kind]
        axes.plot(*places.T, look.marker, color=look.colour, markersize=2, alpha=0.5, markeredgewidth=0)
    for kind, place in shown.centroids():
        look = LOOKS[kind]
        axes.plot(*place, look.marker, color=look.colour, ms=5.5, markeredgecolor="black", markeredgewidth=0.6)
    axes.set(xticks=[], yticks=[], title=shown.title)
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set(visible=True, color="0.7")


def _legend(figure: Figure, kinds: set[str]) -> None:
    shown = {f"{kind} clients": look for kind, look in LOOKS.items() if kind in kinds}
    handles = [Line2D([], [], color=look.colour, marker=look.marker, ls="", ms=4) for look in shown.values()]
    handles.append(Line2D([], [], color="white", marker="o", markeredgecolor="black", ls="", ms=5.5))
    figure.legend(handles, [*shown, "centroid"], loc="outside upper center", ncols=3 if len(handles) > 4 else 4)


def _explained(run: Run, maps: Sequence[FeatureMap]) -> list[str]:
    """What the caption must say."""
    source = "the truth" if truth(run) else "the method's last judgement"
    number, total = (max(values) for values in zip(*((len(shown.places), shown.of) for shown in maps), strict=True))
    drawn = f"{number} of the {total} images saved" if number < total else f"{number} images"
    return [
        f"Features of {drawn}, before the last layer of the final model, by t-SNE (its axes have no unit).",
        f"Kind of client by {source}. Centroids: of a kind's images that are predicted as one class; text: "
        "the classes.",
    ]


FIGURE = FigureKind("features", draw_features, "no run has saved features; --set evaluation.features=50 does")
