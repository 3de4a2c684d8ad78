"""How each client is judged in each round, as a grid of clients and rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedpca.results.figures.shared import series, style
from fedpca.results.figures.shared.registry import FigureKind
from fedpca.results.figures.shared.series import Floats, Methods
from fedpca.results.read.clients import clients_of, column, truth
from fedpca.results.read.runs import Run

COLOURS = {"mislabeled": style.VERMILION, "rare": style.ORANGE, "common": "#D3E3F0"}  # from dark to light in grey, too
SYMBOLS = {"mislabeled": "▲ ", "rare": "■ ", "rare and mislabeled": "◆ "}  # before the names, by the truth
MAX_CLIENTS = 40  # rows in which names can be read
ROW = 0.1  # inches


@style.for_journals
def draw_identification(runs: Sequence[Run]) -> Figure | None:
    """A panel per method that judges clients; where the truth is known, the names say it."""
    methods = {label: own for label, own in series.by_method(runs).items() if any(map(_judges, own))}
    if not methods:
        return None
    kinds = truth(runs[0])
    everybody = rank_clients(methods, kinds or {})
    clients, columns = everybody[:MAX_CLIENTS], min(len(methods), 3)
    rows = -(-len(methods) // columns)
    height = 0.95 + rows * (0.45 + max(0.7, ROW * len(clients)))
    figure, grid = style.canvas(rows, columns, style.WIDTH if columns > 1 else 4.4, height, share=True)
    for axes, (label, own) in zip((axes for row in grid for axes in row), methods.items(), strict=False):
        _panel(axes, shares(own, clients))
        axes.set_title(style.wrap_label(label))
    _write_names(grid[0][0], clients, kinds or {})
    style.finish_grid(grid, len(methods), "round", "client")
    _legend(figure, clients, kinds or {}, columns)
    style.note(figure, series.scenario(runs), *_explained(methods, len(clients), len(everybody)))
    return figure


def rank_clients(methods: Methods, kinds: Mapping[str, str]) -> list[str]:
    """Every client: the truly mislabeled first, then the truly rare; among these, the most often judged mislabeled."""
    runs = [run for own in methods.values() for run in own]
    clients = list(dict.fromkeys(client for run in runs for client in clients_of(run)))
    judged = sum(np.nansum(shares(own, clients)[:, :, 0], axis=1) for own in methods.values())
    often = dict(zip(clients, np.asarray(judged).tolist(), strict=True))

    def place(client: str) -> tuple[bool, bool, float]:
        kind = kinds.get(client, "")
        return "mislabeled" not in kind, "rare" not in kind, -often[client]

    return sorted(clients, key=place)


def shares(runs: Sequence[Run], clients: Sequence[str]) -> Floats:
    """The share of seeds that judge a client mislabeled, rare and common in each round (clients, rounds, 3).

    It is not a number where no seed judges the client.
    """
    counts = np.zeros((len(clients), max(run.settings.rounds for run in runs), len(COLOURS)))
    for run in runs:
        for line in run.rounds:
            groups = column(line, "group", clients)
            counts[:, line["round"] - 1] += [[group == name for name in COLOURS] for group in groups]
    total = counts.sum(axis=2, keepdims=True)
    found: Floats = np.where(total > 0, counts / np.maximum(total, 1), np.nan)
    return found


def _judges(run: Run) -> bool:
    return any(any(line["clients"].get("group") or ()) for line in run.rounds)


def _panel(axes: Axes, found: Floats) -> None:
    colours = np.array([to_rgb(colour) for colour in COLOURS.values()])
    image = np.where(np.isnan(found), 1.0, np.nan_to_num(found) @ colours)
    clients, rounds, _ = found.shape
    axes.imshow(
        image, extent=(0.5, rounds + 0.5, clients - 0.5, -0.5), aspect="auto", interpolation="none", origin="upper"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    axes.hlines(np.arange(1, clients) - 0.5, 0.5, rounds + 0.5, color="white", linewidth=0.4)


def _write_names(axes: Axes, clients: Sequence[str], kinds: Mapping[str, str]) -> None:
    names = [SYMBOLS.get(kinds.get(client, ""), "") + style.shorten(client, 18) for client in clients]
    axes.set_yticks(range(len(clients)), names, fontsize=5.5 if len(clients) > 10 else 7)


def _legend(figure: Figure, clients: Sequence[str], kinds: Mapping[str, str], columns: int) -> None:
    patches = [Patch(facecolor=colour, label=f"judged {group}") for group, colour in COLOURS.items()]
    patches.append(Patch(facecolor="white", edgecolor="0.6", linewidth=0.5, label="not judged"))
    marks = [
        Line2D([], [], marker=style.KINDS[kind].marker, color="black", linestyle="", label=f"truly {kind}")
        for kind in SYMBOLS
        if kind in {kinds.get(client) for client in clients}
    ]
    handles = [*patches, *marks]
    figure.legend(handles=handles, loc="outside upper center", ncols=6 if columns > 1 else 2)


def _explained(methods: Methods, shown: int, known: int) -> list[str]:
    """What the caption must say of seeds, and of clients that have no row."""
    counts = sorted({len(own) for own in methods.values()})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    said = ["One seed." if counts == [1] else f"Colours are means over {number} seeds: mixed where seeds differ."]
    if shown < known:
        said.append(f"Shown are {shown} of {known} clients, those first that are most often judged mislabeled.")
    return said


FIGURE = FigureKind("identification", draw_identification, "no run has judged clients")
