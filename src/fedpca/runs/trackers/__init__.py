"""Trackers, one per file: rounds in TensorBoard, MLflow or Weights & Biases too; the run folder stays the record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from fedpca.errors import UserError, nearest
from fedpca.runs.trackers.base import Tracker, TrackerKind, without_password
from fedpca.settings.registry import PLACE, Registry


def _own() -> dict[str, TrackerKind]:
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    kinds = (value for module in modules for value in vars(module).values() if isinstance(value, TrackerKind))
    return {kind.name: kind for kind in kinds}


TRACKERS = Registry("tracker", TrackerKind, _own(), group="fedpca.trackers")


def choose(options: Sequence[str], out: Path, experiment: str) -> list[Tracker]:
    """The trackers that `--log-to NAME[=WHERE]` asks for; refuses what is unknown or not installed."""
    return [_chosen(text, out, experiment) for text in dict.fromkeys(options)]


def _chosen(text: str, out: Path, experiment: str) -> Tracker:
    name, equals, where = text.partition("=")
    if name not in TRACKERS and not PLACE.fullmatch(name):
        close = nearest(name, TRACKERS).partition(";")[0]
        raise UserError(f"--log-to: there is no tracker {name!r}{close}; there are {', '.join(TRACKERS)}")
    if equals and not where:
        raise UserError(f"--log-to {text}: nothing follows the =; say where, or leave the = out")
    kind = TRACKERS[name]
    _import(kind)
    return kind.open(without_password(text), where, out, experiment)


def _import(kind: TrackerKind) -> None:
    for variable, value in kind.environment.items():
        os.environ.setdefault(variable, value)
    try:
        for module in kind.modules:
            import_module(module)
    except ImportError as error:
        remedy = f"pip install 'fedpca[{kind.name}]'"
        raise UserError(f"--log-to {kind.name} needs a package that is not installed ({error}): {remedy}") from None
