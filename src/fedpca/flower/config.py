"""Flower's run config and node config as settings: flat, with dotted keys, of texts and numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from fedpca.errors import SettingsError
from fedpca.settings.base import Table
from fedpca.settings.experiment import Experiment
from fedpca.sites.settings import RENAMED, Deployment, SiteSettings, checked, read_deployment

Scalar = bool | int | float | str
SIMULATED = ("partition-id", "num-partitions")  # what Flower's simulation tells a node


def read_run_config(config: Mapping[str, Scalar]) -> tuple[Experiment, Deployment]:
    """The one run that a run config describes.

    Its keys are those of docs/settings.md, dotted (`training.lr`), with one method (`methods`) and one seed (`seeds`),
    and `deploy.…`; `experiment` names a TOML file on the server that they change.
    """
    table, source = _base(config.get("experiment"))
    _merge(table, nested({key: value for key, value in config.items() if key != "experiment"}))
    return read_deployment(table, source)


def read_node_config(config: Mapping[str, Scalar], strict: bool = True) -> SiteSettings:
    """A site's settings; without `strict` keys that are not known here are somebody else's."""
    known = {key: value for key, value in config.items() if key not in SIMULATED}
    if not strict:
        fields = SiteSettings.model_fields.keys() | RENAMED
        known = {key: value for key, value in known.items() if key.partition(".")[0] in fields}
    if "partition-id" in config:
        known.setdefault("site", str(config["partition-id"]))
    if "site" not in known:
        raise SettingsError("this node has no name: start it with --node-config 'site=\"NAME\" …'")
    return checked(SiteSettings, nested(known), "the node config")


def nested(flat: Mapping[str, Scalar]) -> Table:
    """Dotted keys as tables in tables."""
    table: Table = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        inner = table
        for part in path:
            step = inner.setdefault(part, {})
            if not isinstance(step, dict):
                raise SettingsError(f"{key!r}: {part!r} is given as a value too; it can only be one of both")
            inner = step
        inner[last] = value
    return table


def _base(path: object) -> tuple[Table, str]:
    """The table that a run config changes, and its name in messages."""
    if path is None:
        return {}, "the run config"
    file = Path(str(path)).expanduser()
    try:
        return {"name": file.stem, **tomllib.loads(file.read_text(encoding="utf-8"))}, str(file)
    except OSError as error:
        raise SettingsError(f"the settings file {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from None


def _merge(table: Table, changes: Mapping[str, object]) -> None:
    for key, value in changes.items():
        inner = table.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            _merge(inner, value)
        else:
            table[key] = value
