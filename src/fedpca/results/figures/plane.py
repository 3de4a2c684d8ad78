"""The loss-dispersion plane of one round, with the mixture by which clients were judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fedpca.core import ClientId, Report
from fedpca.methods.identify import mixture_rule
from fedpca.parts.mixture import fit
from fedpca.parts.server.identify import FLOOR, ThreeGroups, on_plane, scaled
from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.labels import name_points
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.series import Line
from fedpca.results.read.clients import truth
from fedpca.results.read.runs import Run

Floats = NDArray[np.float64]
Reports = Mapping[ClientId, Report]
MAX_NAMES = 20  # beside points; of more clients only those judged mislabeled are named


@dataclass(frozen=True)
class Component:
    """One Gaussian of the mixture, in the plane's own units."""

    group: str
    mean: Floats  # (2,)
    covariance: Floats  # (2, 2)

    def outline(self, deviations: float) -> Floats:
        """The ellipse so many standard deviations away from the mean (100, 2)."""
        angles = np.linspace(0, 2 * np.pi, 100)
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        variances, directions = np.linalg.eigh(self.covariance)
        points: Floats = self.mean + deviations * (circle * np.sqrt(variances.clip(0))) @ directions.T
        return points


@dataclass(frozen=True)
class Snapshot:
    """One run in one round."""

    label: str
    seed: int
    round: int
    places: dict[ClientId, tuple[float, float]]  # loss and dispersion, as last reported
    stale: frozenset[ClientId]  # whose report is of an earlier round
    collapsed: frozenset[ClientId]  # whose predictions are all of one class: they have no place on the plane
    groups: dict[ClientId, str | None]  # as the method judges them
    components: tuple[Component, ...]  # none if they were judged by another rule


@style.for_journals
def draw_plane(runs: Sequence[Run], round: int | None = None) -> Figure | None:
    """A panel per method that reports dispersion: its lowest seed in one round, by default the last that has it."""
    found = (snapshot(own[0], round) for own in series.by_method(runs).values())
    shown = [seen for seen in found if seen is not None]
    if not shown:
        return None
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    width, height = ((4.4, 2.4), (5.4, 2.0), (style.WIDTH, 1.75))[columns - 1]
    figure, grid = style.canvas(rows, columns, width, 1.1 + height * rows)
    kinds = truth(runs[0])
    for axes, seen in zip((axes for row in grid for axes in row), shown, strict=False):
        _panel(axes, seen, kinds)
    style.finish_grid(grid, len(shown), "loss", "dispersion (log)")
    _legend(figure, shown, kinds)
    style.note(figure, series.scenario(runs), *_explained(shown, kinds))
    for axes, seen in zip((axes for row in grid for axes in row), shown, strict=False):
        names = _named(seen)
        others = [place for client, place in seen.places.items() if client not in names]
        name_points(figure, axes, [(*seen.places[c], style.shorten(c)) for c in names], others)
    return figure


def snapshot(run: Run, round: int | None = None) -> Snapshot | None:
    """The run in this round, else in the last one with dispersions; None if there is none."""
    numbers = [i for i, line in enumerate(run.rounds) if line["clients"].get("dispersion")]
    numbers = [i for i in numbers if round is None or run.rounds[i]["round"] == round]
    if not numbers:
        return None
    line = run.rounds[numbers[-1]]
    before = reports(run.rounds[numbers[-1] - 1]) if numbers[-1] else {}
    reported = reports(line)
    same = frozenset(client for client, report in reported.items() if before.get(client) == report)
    stale = same if len(same) < len(reported) else frozenset()  # if all are the same, the model has not changed
    places, groups, rule = on_plane(reported), line["clients"].get("group"), rule_of(run)
    collapsed = frozenset(client for client, (_, spread) in places.items() if spread <= log(FLOOR) + 1e-9)
    fresh = {client: report for client, report in reported.items() if client not in stale}
    return Snapshot(
        run.label(),
        run.seed,
        line["round"],
        {client: place for client, place in places.items() if client not in collapsed},
        stale,
        collapsed,
        dict(zip(line["clients"]["id"], groups, strict=True)) if groups else {},
        components(rule, fresh) if rule else (),
    )


def reports(line: Line) -> dict[ClientId, Report]:
    """Loss and dispersion of the clients that have given both."""
    columns = line["clients"]
    rows = zip(columns["id"], columns.get("loss") or (), columns.get("dispersion") or (), strict=False)
    return {
        client: {"loss": loss, "dispersion": spread}
        for client, loss, spread in rows
        if loss is not None and spread is not None
    }


def rule_of(run: Run) -> ThreeGroups | None:
    """The paper's rule under the run's own settings; None if the run judges by another, or not at all."""
    found = run.identify
    return mixture_rule(found.mixture) if found and found.rule == "mixture" else None


def components(rule: ThreeGroups, reported: Reports) -> tuple[Component, ...]:
    """The mixture by which the rule judges: of its fits the first whose components are those groups."""
    findings = rule(reported)
    if findings is None:
        return ()
    kept = {client: place for client, place in on_plane(reported).items() if place[1] > log(FLOOR) + 1e-9}
    points = np.array(list(kept.values()))
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    low, span = (low, np.where(span > 0, span, 1.0)) if rule.scale == "minmax" else (np.zeros(2), np.ones(2))
    stretched = scaled(points) if rule.scale == "minmax" else points
    fits = fit(stretched, 3, rule.starts, rule.covariance, rule.ridge, rule.steps)
    for means, covariances, resp in zip(fits.means, fits.covariances, fits.responsibilities, strict=True):
        members = resp.argmax(axis=1)
        names = [{findings[c].group for c, own in zip(kept, members, strict=True) if own == i} for i in range(3)]
        if all(len(name) == 1 for name in names):
            parts = zip(names, means, covariances, strict=True)
            return tuple(
                Component(name.pop(), mean * span + low, cov * np.outer(span, span)) for name, mean, cov in parts
            )
    return ()


def _named(seen: Snapshot) -> list[ClientId]:
    """Whose names are written: everybody's, or of many clients those of the clients judged mislabeled."""
    judged = [client for client in seen.places if seen.groups.get(client) == "mislabeled"]
    rest = [client for client in seen.places if client not in judged]
    return ([*judged, *rest] if len(seen.places) <= MAX_NAMES else judged)[:MAX_NAMES]


def _panel(axes: Axes, seen: Snapshot, kinds: dict[ClientId, str] | None) -> None:
    alike: dict[tuple[str | None, str | None, bool], list[tuple[float, float]]] = {}
    for client, place in seen.places.items():
        key = seen.groups.get(client), kinds[client] if kinds else None, client in seen.stale
        alike.setdefault(key, []).append(place)
    for (judged, kind, stale), places in alike.items():
        truly, pale = style.KINDS[kind] if kind else style.UNKNOWN, 0.3 if stale else 1.0
        axes.plot(
            *np.transpose(places),
            marker=truly.marker,
            color=to_rgba(style.KINDS[judged].colour, 0.45 * pale) if judged else "white",
            markeredgecolor=to_rgba(truly.colour, pale),
            markeredgewidth=0.8,
            markersize=4 if len(seen.places) <= 100 else 2.5,
            linestyle="",
            zorder=2.0 if judged == kind else 2.5,  # mistakes stay visible in a crowd
        )
    for part in seen.components:
        colour = 0.6 * np.array(to_rgb(style.KINDS[part.group].colour))
        for deviations, line in ((1, "-"), (2, "--")):
            axes.plot(*part.outline(deviations).T, color=colour, linewidth=0.7, linestyle=line, zorder=3)
    axes.set_title(f"{style.wrap_label(seen.label)}, round {seen.round}")
    axes.margins(0.06)


def _legend(figure: Figure, shown: Sequence[Snapshot], kinds: dict[ClientId, str] | None) -> None:
    judged = {group for seen in shown for group in seen.groups.values()}
    fills = {f"judged {group}": look for group, look in style.KINDS.items() if group in judged}
    shapes = {f"truly {kind}": look for kind, look in style.KINDS.items() if kind in (kinds or {}).values()}
    patches = [
        Line2D([], [], marker="o", color=to_rgba(look.colour, 0.45), markeredgewidth=0, linestyle="", markersize=6)
        for look in fills.values()
    ]
    outlines = [
        Line2D([], [], marker=look.marker, color="white", markeredgecolor=look.colour, linestyle="", markersize=5)
        for look in shapes.values()
    ]
    figure.legend(
        [*patches, *outlines], [*fills, *shapes], loc="outside upper center", ncols=6 if len(shown) > 2 else 2
    )


def _explained(shown: Sequence[Snapshot], kinds: dict[ClientId, str] | None) -> list[str]:
    """What the caption must say of these panels, and of no others."""
    seeds = ", ".join(map(str, sorted({seen.seed for seen in shown})))
    truth = "the truth is not known" if kinds is None else "shape and outline: the truth"
    said = [f"The lowest seed of each method ({seeds}). Fill: as the method judges; {truth}."]
    if any(seen.components for seen in shown):
        said.append("Ellipses: 1 and 2 standard deviations of the mixture fitted to this round's reports.")
    if without := [seen.label for seen in shown if not seen.components]:
        said.append(f"No ellipses, since no mixture judged in this round: {', '.join(without)}.")
    if any(len(seen.places) > MAX_NAMES for seen in shown):
        said.append(f"Of more than {MAX_NAMES} clients, {MAX_NAMES} judged mislabeled are named at most.")
    if any(seen.stale for seen in shown):
        said.append("Pale: reported in an earlier round.")
    if gone := [f"{len(seen.collapsed)} of {seen.label}" for seen in shown if seen.collapsed]:
        said.append(f"Not on the plane, all predictions in one class: {', '.join(gone)}.")
    return said


FIGURE = FigureKind(
    "plane",
    draw_plane,
    "no run has reported dispersions; fedpca-* and X+d do, after their warm-up",
    of_round=True,
)
