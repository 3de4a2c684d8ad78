"""Every kind of figure by name; nothing of matplotlib is imported before one is drawn."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from fedpca.settings.registry import Registry, installed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True)
class FigureKind:
    """One kind of figure: `draw` takes the runs of one scenario and returns None where they lack what it needs.

    A figure `across` some settings takes the runs of all scenarios that differ in nothing but these.
    """

    name: str
    draw: Callable[..., Figure | None]
    lacking: str  # what the runs lack, for people
    of_round: bool = False  # whether it shows one round: `draw` then also takes `round`, None for the last
    across: frozenset[str] = frozenset()  # settings, by their first names, in which the runs may differ


class _Files(Mapping[str, FigureKind]):
    """The figures of this folder, each imported when it is asked for."""

    names = tuple(module.name for module in iter_modules([str(FOLDER)]) if not module.ispkg)

    def __getitem__(self, name: str) -> FigureKind:
        if name not in self.names:
            raise KeyError(name)
        kind: FigureKind = import_module(f"fedpca.results.figures.{name}").FIGURE
        return kind

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


FIGURES = Registry("figure", FigureKind, _Files(), group="fedpca.figures")


def figure_names() -> list[str]:
    """The names of all figures: those of this folder, then those of installed packages."""
    return list(FIGURES)


def figure_summaries() -> dict[str, str]:
    """What each figure shows: the first line of its file, which is not run; where it is, if another package's."""
    files = {name: ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")) for name in FIGURES.own}
    own = {name: (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".") for name, tree in files.items()}
    return own | {name: f"from {place}" for name, place in installed(FIGURES.group).items() if name not in own}
