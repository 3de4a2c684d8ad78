"""A deployment's settings: the server's from Flower's run config, a site's from its node config."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from fedpca.errors import SettingsError, nearest
from fedpca.settings.base import Count, NonNegative, Positive, Settings
from fedpca.settings.experiment import Experiment, Table, check_experiment

Scalar = bool | int | float | str  # what Flower's configs hold
Kind = TypeVar("Kind", bound=Settings)

SITE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"
SIMULATED = ("partition-id", "num-partitions")  # what Flower's simulation tells a node


class Veil(Settings):
    """What is done to the numbers of a report before they leave a site."""

    clip: Positive | None = None  # the largest amount that a number may have
    noise: NonNegative = 0.0  # deviation of the normal noise that is added to each number


class Deployment(Settings):
    """What a federation of real sites needs besides an experiment: the keys `deploy.…` of the run config."""

    out: Path = Path("runs")  # folder of the runs, on the server
    sites: Count = 2  # to wait for before the first round
    quorum: Count | None = None  # sites whose answers a round must have; more than half of `sites` if not given
    deadline: Positive = 600.0  # seconds that sites have to answer in an exchange
    wait: Positive = 600.0  # seconds that sites have to appear before the first round
    exchange: Literal["two", "one"] = (
        "two"  # report, then training; or both at once, judged by the last round's reports
    )
    classes: tuple[str, ...] = ()  # in the order of the model's outputs; if not given, all that the first sites have
    veil: Veil = Veil()

    @field_validator("classes", mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        """Flower's configs have no lists: names are parted by commas."""
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _quorum_is_possible(self) -> Deployment:
        if self.quorum is not None and self.quorum > self.sites:
            raise ValueError(
                f"quorum = {self.quorum}, but sites = {self.sites}: the first round would fall short of it"
            )
        return self

    @property
    def least(self) -> int:
        """The quorum in force."""
        return self.quorum if self.quorum is not None else self.sites // 2 + 1


class Node(Settings):
    """What a site's operator sets: the SuperNode's `--node-config`, a TOML file or `key=value` pairs."""

    site: Annotated[str, Field(pattern=SITE_NAME)]
    data: Path | None = None  # images and labels, in any layout of docs/settings.md
    store: Path | None = None  # what the site remembers between messages
    device: Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d+)?)$")] = "cpu"
    threads: Count = 1  # of PyTorch; only one gives the bits of a simulation
    veil: Veil | None = None  # in place of what the server asks for

    @property
    def folder(self) -> Path:
        """Where the site remembers things."""
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return self.store or Path(state) / "fedpca" / self.site


def read_run_config(config: Mapping[str, Scalar]) -> tuple[Experiment, Deployment]:
    """The one run that Flower's run config describes.

    Its keys are those of docs/settings.md, dotted (`training.lr`), with one method (`methods`) and one seed (`seeds`),
    and `deploy.…`; `experiment` names a TOML file on the server that they change.
    """
    table, source = _base(config.get("experiment"))
    _merge(table, nested({key: value for key, value in config.items() if key != "experiment"}))
    deployment = checked(Deployment, table.pop("deploy", {}), f"{source}: deploy")
    for key in ("methods", "seeds"):
        if key in table and not isinstance(table[key], list):
            table[key] = [table[key]]
    data = table.setdefault("data", {})
    if isinstance(data, dict):
        data.setdefault("clients", deployment.sites)
        data.setdefault("dataset", table.get("name", "sites"))
    return one_run(check_experiment({"seeds": [0], **table}, source), source), deployment


def one_run(experiment: Experiment, source: str) -> Experiment:
    """The experiment, complete, if it is a single run on the sites' own data."""
    for key, values in (("methods", experiment.methods), ("seeds", experiment.seeds)):
        if len(values) != 1:
            raise SettingsError(f"{source}: {key}: a deployment is one run, came {list(values)}: choose one")
    if experiment.rare.share or experiment.noise.clients:
        raise SettingsError(
            f"{source}: rare and noise make up sites for a simulation; real ones have data: leave them out"
        )
    if experiment.model.backbone or experiment.evaluation.on != "test":
        raise SettingsError(f"{source}: model.backbone and evaluation.on are for simulations: leave them out")
    return experiment.cell(experiment.methods[0], experiment.seeds[0])


def read_node_config(config: Mapping[str, Scalar], strict: bool = True) -> Node:
    """A site's settings; without `strict` keys that are not known here are somebody else's."""
    known = {key: value for key, value in config.items() if key not in SIMULATED}
    if not strict:
        known = {key: value for key, value in known.items() if key.partition(".")[0] in Node.model_fields}
    if "partition-id" in config:
        known.setdefault("site", str(config["partition-id"]))
    if "site" not in known:
        raise SettingsError("this node has no name: start it with --node-config 'site=\"NAME\" …'")
    return checked(Node, nested(known), "the node config")


def checked(kind: type[Kind], table: object, source: str) -> Kind:
    """Settings of a kind; an error names the first key that is wrong."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "all"
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"{source}: unknown key {key!r}{nearest(key, kind.model_fields)}") from None
        raise SettingsError(f"{source}: {key}: {first['msg']} (came: {first['input']!r})") from None


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
