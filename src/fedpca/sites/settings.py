"""A deployment's settings: those of the run, which the server has, and those of a site, which its operator sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from fedpca.errors import SettingsError, nearest
from fedpca.runs.check import check_experiment
from fedpca.runs.check import one_run as run_of
from fedpca.settings.base import Count, Device, NonNegative, Positive, Settings, Table
from fedpca.settings.experiment import Experiment

Kind = TypeVar("Kind", bound=Settings)

SITE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"  # a file's name, a log's prefix and a setting's value
SiteName = Annotated[str, Field(pattern=SITE_NAME)]
RENAMED = {"veil": "privacy"}  # keys of version 0.1


class ReportPrivacy(Settings):
    """What is done to the numbers of a report before they leave a site."""

    clip: Positive | None = None  # the largest amount that a number may have
    noise: NonNegative = 0.0  # deviation of the normal noise that is added to each number


class Deployment(Settings):
    """What a federation of real sites needs besides an experiment."""

    out: Path = Path("runs")  # folder of the runs, on the server
    sites: Count = 2  # to wait for before the first round
    quorum: Count | None = None  # sites whose answers a round must have; more than half of `sites` if not given
    deadline: Positive = 600.0  # seconds that sites have to answer in an exchange
    wait: Positive = 600.0  # seconds that sites have to appear before the first round
    exchange: Literal["two", "one"] = "two"  # report, then training; or both at once, judged by the last reports
    classes: tuple[str, ...] = ()  # in the order of the model's outputs; if not given, all that the first sites have
    privacy: ReportPrivacy = ReportPrivacy()

    @field_validator("classes", mode="before")
    @classmethod
    def _split_text(cls, value: object) -> object:
        """Names in one text are separated by commas: Flower's configs have no lists."""
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_quorum(self) -> Deployment:
        if self.quorum is not None and self.quorum > self.sites:
            raise ValueError(
                f"quorum = {self.quorum}, but sites = {self.sites}: the first round would fall short of it"
            )
        return self

    @property
    def min_answers(self) -> int:
        """The quorum in force."""
        return self.quorum if self.quorum is not None else self.sites // 2 + 1


class SiteSettings(Settings):
    """What a site's operator sets."""

    site: SiteName
    data: Path | None = None  # images and labels, in any layout of docs/settings.md
    store: Path | None = None  # what the site remembers between messages
    device: Device = "cpu"
    threads: Count = 1  # of PyTorch; only one gives the bits of a simulation
    privacy: ReportPrivacy | None = None  # in place of what the server asks for

    @property
    def folder(self) -> Path:
        """Where the site remembers things."""
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return self.store or Path(state) / "fedpca" / self.site


def read_deployment(table: Table, source: str) -> tuple[Experiment, Deployment]:
    """The one run that a table describes: keys of docs/settings.md with one method and one seed, and `[deploy]`."""
    table = dict(table)
    deployment = checked(Deployment, table.pop("deploy", {}), f"{source}: deploy")
    for key in ("methods", "seeds"):
        if key in table and not isinstance(table[key], list):
            table[key] = [table[key]]
    data = table.get("data", {})
    if isinstance(data, dict):
        table["data"] = {"clients": deployment.sites, "dataset": table.get("name", "sites"), **data}
    return one_run(check_experiment({"seeds": [0], **table}, source), source), deployment


def one_run(experiment: Experiment, source: str) -> Experiment:
    """The experiment, complete, if it is a single run on the sites' own data."""
    for key, values in (("methods", experiment.methods), ("seeds", experiment.seeds)):
        if len(values) != 1:
            raise SettingsError(f"{source}: {key}: a deployment is one run, got {list(values)}: choose one")
    if experiment.rare.share or experiment.noise.clients:
        raise SettingsError(
            f"{source}: rare and noise make up sites for a simulation; real ones have data: leave them out"
        )
    if experiment.model.backbone or experiment.evaluation.on != "test":
        raise SettingsError(f"{source}: model.backbone and evaluation.on are for simulations: leave them out")
    return run_of(experiment, experiment.methods[0], experiment.seeds[0])


def checked(kind: type[Kind], table: object, source: str) -> Kind:
    """Settings of a kind; an error names the first key that is wrong."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "all"
        if new := RENAMED.get(key.partition(".")[0]):
            raise SettingsError(f"{source}: {key!r} is called {new!r} now") from None
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"{source}: unknown key {key!r}{nearest(key, kind.model_fields)}") from None
        raise SettingsError(f"{source}: {key}: {first['msg']} (got {first['input']!r})") from None
