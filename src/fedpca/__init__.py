"""Federated learning via performance-capacity analysis: one model, many data owners, not all of them right."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedpca.api.audit import audit
    from fedpca.api.run import run
    from fedpca.api.train import train
    from fedpca.core import Method, Outcome, Params, Recipe, Server, Shard, Site, Stage, Update, Verdict
    from fedpca.data.corrupt import Corruption, corruption
    from fedpca.data.datasets import load
    from fedpca.data.federation import federate
    from fedpca.data.noise_kind import NoiseKind
    from fedpca.loop import play
    from fedpca.methods.base import base, one_stage
    from fedpca.methods.combine import plus
    from fedpca.methods.compose import compose
    from fedpca.methods.define import Definition, Plan, method
    from fedpca.models.build import build
    from fedpca.models.flat import params_of
    from fedpca.parts.server.robust import PerCoordinate
    from fedpca.runs.check import method_of, plan_of, read_experiment, read_settings
    from fedpca.runs.metrics import Metric
    from fedpca.settings.base import Settings
    from fedpca.settings.experiment import Experiment
    from fedpca.simulate.clients import InProcess
    from fedpca.simulate.workers import Workers

_HOMES = {
    "api.audit": ("audit",),
    "api.run": ("run",),
    "api.train": ("train",),
    "settings.base": ("Settings",),
    "core": ("Method", "Outcome", "Params", "Recipe", "Server", "Shard", "Site", "Stage", "Update", "Verdict"),
    "data.corrupt": ("Corruption", "corruption"),
    "data.datasets": ("load",),
    "data.federation": ("federate",),
    "data.noise_kind": ("NoiseKind",),
    "loop": ("play",),
    "methods.base": ("base", "one_stage"),
    "methods.compose": ("compose",),
    "methods.define": ("Definition", "Plan", "method"),
    "methods.combine": ("plus",),
    "parts.server.robust": ("PerCoordinate",),
    "models.build": ("build",),
    "models.flat": ("params_of",),
    "runs.check": ("method_of", "plan_of", "read_experiment", "read_settings"),
    "runs.metrics": ("Metric",),
    "settings.experiment": ("Experiment",),
    "simulate.clients": ("InProcess",),
    "simulate.workers": ("Workers",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Corruption",
    "Definition",
    "Experiment",
    "InProcess",
    "Method",
    "Metric",
    "NoiseKind",
    "Outcome",
    "Params",
    "PerCoordinate",
    "Plan",
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
    "audit",
    "base",
    "build",
    "compose",
    "corruption",
    "federate",
    "load",
    "method",
    "method_of",
    "one_stage",
    "params_of",
    "plan_of",
    "play",
    "plus",
    "read_experiment",
    "read_settings",
    "run",
    "train",
]


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used, so that `fedpca --help` need not wait for PyTorch."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedpca' has no attribute {name!r}")
    return getattr(import_module(f"fedpca.{_HOME[name]}"), name)
