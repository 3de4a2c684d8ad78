"""Every figure by name, and the files they are written to."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from fedpca.atomic import write_whole
from fedpca.errors import RunError
from fedpca.results.figures.features import draw_features
from fedpca.results.figures.identification import draw_identification
from fedpca.results.figures.plane import draw_plane
from fedpca.results.figures.rounds import draw_accuracy, draw_weights
from fedpca.results.figures.series import scenario
from fedpca.results.figures.style import styled
from fedpca.results.figures.sweeps import draw_q, draw_warmup
from fedpca.results.figures.tradeoff import draw_tradeoff
from fedpca.results.read.runs import Run, by_scenario, name_of

Draw = Callable[[Sequence[Run]], Figure | None]


@dataclass(frozen=True)
class Kind:
    """One kind of figure: a function of the runs of one scenario, and what they lack where it returns None."""

    draw: Draw
    lacking: str


@dataclass(frozen=True)
class Drawn:
    """What became of one figure of one scenario: its files, or why there are none."""

    name: str  # of the files, without their ending
    scenario: str
    files: tuple[Path, ...] = ()
    reason: str = ""

    def line(self) -> str:
        """The same in one line, for people."""
        if self.files:
            return f"{self.name}: {', '.join(map(str, self.files))}"
        return f"{self.name}: not drawn, {self.reason}"


FIGURES: dict[str, Kind] = {
    "plane": Kind(draw_plane, "no run has reported dispersions; fedpca-* and X+d do, after their warm-up"),
    "weights": Kind(draw_weights, "no run has weights of clients that are known to be rare or mislabeled"),
    "accuracy": Kind(draw_accuracy, "no round has been tested yet"),
    "identification": Kind(draw_identification, "no run names groups of clients of whom the truth is known"),
    "tradeoff": Kind(draw_tradeoff, "no run has been tested on a common and a rare group"),
    "q": Kind(draw_q, "no method was run with two values of q and everything else the same"),
    "warmup": Kind(draw_warmup, "no method was run with two values of warmup and everything else the same"),
    "features": Kind(draw_features, "no run has saved features; --set evaluation.features=50 does"),
}


def write_figures(runs: Sequence[Run], folder: Path, round: int | None = None) -> list[Drawn]:
    """Writes every figure of every scenario as PNG and PDF; `round` is that of the plane, by default the last one."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"figures go into a folder, but {folder} is a file: name another")
    kinds = dict(FIGURES)
    if round is not None:
        kinds["plane"] = Kind(partial(draw_plane, round=round), f"no run has reported dispersions in round {round}")
    scenarios = by_scenario(runs)
    ends = slugs([name_of(members) for members in scenarios])
    return [
        _write(kind, members, folder / f"{name}{end}")
        for members, end in zip(scenarios, ends, strict=True)
        for name, kind in kinds.items()
    ]


def slugs(names: Sequence[str]) -> list[str]:
    """What tells the scenarios' files apart: nothing if there is one, else "-name", counted where names repeat."""
    if len(names) < 2:
        return [""] * len(names)
    short = [re.sub(r"[^\w.+=-]+", "-", name).lower() for name in names]
    counted = [
        f"{name}-{short[: i + 1].count(name)}" if short.count(name) > 1 else name for i, name in enumerate(short)
    ]
    return [f"-{name}" for name in counted]


@styled
def render(figure: Figure, form: str) -> bytes:
    """The figure as the content of a file, the same bytes for the same figure."""
    content = io.BytesIO()
    figure.savefig(content, format=form, metadata={"png": {"Software": None}, "pdf": {"CreationDate": None}}[form])
    return content.getvalue()


def _write(kind: Kind, runs: Sequence[Run], stem: Path) -> Drawn:
    figure = kind.draw(runs)
    if figure is None:
        return Drawn(stem.name, scenario(runs), reason=kind.lacking)
    files = tuple(stem.with_name(f"{stem.name}.{form}") for form in ("png", "pdf"))
    for path in files:
        write_whole(path, render(figure, path.suffix[1:]))
    return Drawn(stem.name, scenario(runs), files)
