"""Federated learning via performance-capacity analysis: one model, many data owners, not all of them right."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedpca.core import Method, Outcome, Params, Recipe, Server, Shard, Site, Stage, Update, Verdict
    from fedpca.data.datasets import load
    from fedpca.data.federation import federate
    from fedpca.loop import play
    from fedpca.methods.build import base, compose, single
    from fedpca.methods.combine import plus
    from fedpca.models.build import build
    from fedpca.models.flat import params_of
    from fedpca.parts.server.robust import PerCoordinate
    from fedpca.settings.base import Settings
    from fedpca.settings.experiment import Experiment, read_experiment, read_settings
    from fedpca.simulate.clients import InProcess
    from fedpca.simulate.workers import Workers

_HOMES = {
    "settings.base": ("Settings",),
    "core": ("Method", "Outcome", "Params", "Recipe", "Server", "Shard", "Site", "Stage", "Update", "Verdict"),
    "data.datasets": ("load",),
    "data.federation": ("federate",),
    "loop": ("play",),
    "methods.build": ("base", "compose", "single"),
    "methods.combine": ("plus",),
    "parts.server.robust": ("PerCoordinate",),
    "models.build": ("build",),
    "models.flat": ("params_of",),
    "settings.experiment": ("Experiment", "read_experiment", "read_settings"),
    "simulate.clients": ("InProcess",),
    "simulate.workers": ("Workers",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Experiment",
    "InProcess",
    "Method",
    "Outcome",
    "Params",
    "PerCoordinate",
    "Recipe",
    "Server",
    "Settings",
    "Shard",
    "Site",
    "Stage",
    "Update",
    "Verdict",
    "Workers",
    "__version__",
    "base",
    "build",
    "compose",
    "federate",
    "load",
    "params_of",
    "play",
    "plus",
    "read_experiment",
    "read_settings",
    "single",
]


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used, so that `fedpca --help` need not wait for PyTorch."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedpca' has no attribute {name!r}")
    return getattr(import_module(f"fedpca.{_HOME[name]}"), name)
