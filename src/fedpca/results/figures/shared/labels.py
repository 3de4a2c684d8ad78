"""Labels beside points, such that they cover neither points nor each other."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, dist, pi, sin

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextPath
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

SIZE = 6.5  # of the letters, in points
RADIUS = 3.5  # of a marker
Pair = tuple[float, float]
DIRECTIONS = [pi * turn / 8 for turn in (0, 8, 1, 15, 7, 9, 4, 12, 2, 14, 6, 10, 3, 13, 5, 11)]  # beside, then above
DISTANCES = (2, 5, 9, 14, 20, 28, 38, 50, 65, 85, 110)  # points between a marker's edge and its label


def name_points(
    figure: Figure, axes: Axes, named: Sequence[tuple[float, float, str]], avoid: Sequence[Pair] = ()
) -> None:
    """Writes each text beside its point, clear of all points and of those to avoid; places are in data units."""
    if not named:
        return
    figure.draw_without_rendering()  # settles where the axes are
    unit = figure.dpi / 72  # pixels per point
    anchors = [_pair(place / unit) for place in axes.transData.transform([(x, y) for x, y, _ in named])]
    others = [_pair(place / unit) for place in axes.transData.transform(avoid)] if avoid else []
    sizes = [_size(text) for _, _, text in named]
    frame = Bbox(axes.get_window_extent().get_points() / unit)
    centres = free_places(anchors, sizes, frame, others)
    line = {"arrowstyle": "-", "linewidth": 0.4, "color": "0.4", "shrinkA": 0, "shrinkB": RADIUS}
    for (x, y, text), anchor, centre, size in zip(named, anchors, centres, sizes, strict=True):
        far = dist(anchor, centre) > RADIUS + size[0] / 2 + 6
        axes.annotate(
            text,
            (x, y),
            (centre[0] - anchor[0], centre[1] - anchor[1]),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=SIZE,
            arrowprops=line if far else None,
            path_effects=[withStroke(linewidth=1.5, foreground="white")],
            zorder=5,
        ).set_in_layout(False)


def free_places(anchors: Sequence[Pair], sizes: Sequence[Pair], frame: Bbox, others: Sequence[Pair] = ()) -> list[Pair]:
    """A centre for each box near its anchor: inside the frame, clear of all markers and of the boxes before it.

    A box for which there is none stays at the first place beside its anchor. All in points.
    """
    taken = [_box(place, (2 * RADIUS, 2 * RADIUS)) for place in (*anchors, *others)]
    centres = []
    for anchor, size in zip(anchors, sizes, strict=True):
        tries = [_beside(anchor, size, RADIUS + distance, turn) for distance in DISTANCES for turn in DIRECTIONS]
        centre = next((place for place in tries if _is_free(_box(place, size), frame, taken)), tries[0])
        taken.append(_box(centre, size))
        centres.append(centre)
    return centres


def _size(text: str) -> Pair:
    """Width and height of a line of text with a little air around it."""
    extent = TextPath((0, 0), text, size=SIZE).get_extents()
    return extent.width + 2, SIZE


def _pair(place: NDArray[np.float64]) -> Pair:
    return float(place[0]), float(place[1])


def _beside(anchor: Pair, size: Pair, distance: float, turn: float) -> Pair:
    return anchor[0] + cos(turn) * (distance + size[0] / 2), anchor[1] + sin(turn) * (distance + size[1] / 2)


def _box(centre: Pair, size: Pair) -> Bbox:
    return Bbox.from_bounds(centre[0] - size[0] / 2, centre[1] - size[1] / 2, *size)


def _is_free(box: Bbox, frame: Bbox, taken: Sequence[Bbox]) -> bool:
    inside = frame.x0 <= box.x0 and frame.y0 <= box.y0 and box.x1 <= frame.x1 and box.y1 <= frame.y1
    return inside and not any(box.overlaps(other) for other in taken)
