"""`fedpca list`: what a settings file may name, and the experiments that come with the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedpca.errors import SettingsError
from fedpca.settings.shipped import shipped_experiments

Kind = Literal["methods", "datasets", "models", "corruptions", "noise", "attacks", "metrics", "figures", "experiments"]
OWN_DATA = {
    "NAME": "a folder of that name in the data folder: parquet files, images by class, or CSV with images",
    "PATH": "your own .npz, .parquet or .csv file, or a folder of those or of images by class",
}
OWN_MODEL = {"PACKAGE.MODULE:FUNCTION": "your own: function(shape, classes) returning an nn.Module; shape is (C, H, W)"}


def list_(
    what: Annotated[Kind, typer.Argument(help="What to list.")],
    name: Annotated[
        str | None, typer.Argument(help="A method to describe: its idea, equations, settings, when to use it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what a settings file may name; with the name of a method, describe that one."""
    if name is not None:
        _describe(what, name, as_json)
        return
    lines = _summaries(what)
    if as_json:
        details = _method_details if what == "methods" else lambda name: {"name": name, "summary": lines[name]}
        print(json.dumps([details(name) for name in lines], indent=2))
    else:
        width = max(map(len, lines), default=0)
        print("\n".join(f"{name:<{width}}  {line}" for name, line in lines.items()))


def _summaries(what: Kind) -> Mapping[str, str]:
    """One line for each thing of a kind."""
    from fedpca.data.corrupt import CORRUPTIONS
    from fedpca.data.known import KNOWN
    from fedpca.data.noise import NOISE_KINDS
    from fedpca.methods.registry import facts, method_names
    from fedpca.models.registry import MODELS
    from fedpca.results.figures.shared.registry import figure_summaries
    from fedpca.runs.metrics import METRICS
    from fedpca.simulate.attack.kinds import ATTACKS

    kinds: dict[Kind, Callable[[], Mapping[str, str]]] = {
        "methods": lambda: {name: facts(name).summary for name in method_names()},
        "datasets": lambda: {name: known.summary for name, known in KNOWN.items()} | OWN_DATA,
        "models": lambda: {name: model.summary for name, model in MODELS.items()} | OWN_MODEL,
        "corruptions": lambda: {name: CORRUPTIONS[name].summary for name in CORRUPTIONS},
        "noise": lambda: {name: NOISE_KINDS[name].summary for name in NOISE_KINDS},
        "attacks": lambda: {name: ATTACKS[name].summary for name in ATTACKS},
        "metrics": lambda: {name: METRICS[name].words for name in METRICS},
        "figures": figure_summaries,
        "experiments": lambda: {name: _first_comment(path) for name, path in shipped_experiments().items()},
    }
    return kinds[what]()


def _first_comment(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()


def _method_details(name: str) -> dict[str, object]:
    from fedpca.methods.registry import facts, settings_of

    known, settings = facts(name), settings_of(name, name, {}).model_dump(mode="json")
    return {"name": name, "summary": known.summary, "family": known.family, "settings": settings}


def _describe(what: str, name: str, as_json: bool) -> None:
    """Prints one method's page, rendered where a person looks at it."""
    from rich.console import Console
    from rich.markdown import Markdown

    from fedpca.cli.pages import describe

    if what != "methods":
        raise SettingsError(f"`fedpca list {what}` takes no name; only `fedpca list methods NAME` describes one")
    if as_json:
        print(json.dumps(_method_details(name), indent=2))
    elif sys.stdout.isatty():
        Console().print(Markdown(describe(name)))
    else:
        print(describe(name))
