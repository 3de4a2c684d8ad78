"""Figures as files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedpca.atomic import write_whole
from fedpca.errors import RunError, UserError
from fedpca.results.figures.shared.registry import FIGURES, FigureKind
from fedpca.results.read.runs import Run, by_scenario, name_of, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureResult:
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


def write_figures(runs: Sequence[Run], folder: Path, round: int | None = None) -> list[FigureResult]:
    """Writes every figure of every scenario as PNG and PDF; `round` is for those of one round, by default the last.

    A figure across some settings is written once for all scenarios that differ in these alone.
    """
    if not has_matplotlib():
        raise UserError("figures need matplotlib, which is not installed: pip install 'fedpca[results]'")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"figures go into a folder, but {folder} is a file: name another")
    return [
        _write(kind, members, folder / f"{kind.name}{end}", round)
        for kind in (FIGURES[name] for name in FIGURES)
        for members, end in _named(by_scenario(runs, kind.across))
    ]


def _named(scenarios: Sequence[Sequence[Run]]) -> Iterable[tuple[Sequence[Run], str]]:
    """Scenarios, each with the end of its files' names."""
    return zip(scenarios, slugs([name_of(members) for members in scenarios]), strict=True)


def has_matplotlib() -> bool:
    """Whether figures can be drawn."""
    try:
        return find_spec("matplotlib") is not None
    except ValueError:  # a module that somebody has put out of use
        return False


def slugs(names: Sequence[str]) -> list[str]:
    """What tells the scenarios' files apart: nothing if there is one, else "-name", counted where names repeat."""
    if len(names) < 2:
        return [""] * len(names)
    short = [re.sub(r"[^\w.+=-]+", "-", name).lower() for name in names]
    counted = [
        f"{name}-{short[: i + 1].count(name)}" if short.count(name) > 1 else name for i, name in enumerate(short)
    ]
    return [f"-{name}" for name in counted]


def render(figure: Figure, form: str) -> bytes:
    """The figure as the content of a file, the same bytes for the same figure."""
    from matplotlib import rc_context

    from fedpca.results.figures.shared.style import RC

    content, metadata = io.BytesIO(), {"png": {"Software": None}, "pdf": {"CreationDate": None}}
    with rc_context(RC):
        figure.savefig(content, format=form, metadata=metadata[form])
    return content.getvalue()


def _write(kind: FigureKind, runs: Sequence[Run], stem: Path, round: int | None) -> FigureResult:
    figure = kind.draw(runs, round=round) if kind.of_round else kind.draw(runs)
    if figure is None:
        within = "" if round is None or not kind.of_round else f"in round {round}, "
        return FigureResult(stem.name, title(runs), reason=within + kind.lacking)
    files = tuple(stem.with_name(f"{stem.name}.{form}") for form in ("png", "pdf"))
    for path in files:
        write_whole(path, render(figure, path.suffix[1:]))
    return FigureResult(stem.name, title(runs), files)
