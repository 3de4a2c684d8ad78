"""A deployment's settings: those of the run, which the server has, and those of a site, which its operator sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from fedpca.auditing.options import AuditOptions
from fedpca.settings.base import Count, Device, Names, Positive, Settings
from fedpca.settings.privacy import ReportPrivacy

SITE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"  # a file's name, a log's prefix and a setting's value
SiteName = Annotated[str, Field(pattern=SITE_NAME)]

# `[aggregation]` of a deployment that sets nothing else
BOUNDS = {"max_weight": 3.0, "max_size": 10.0, "clip": 3.0, "max_share": 0.3}


class AuditTelling(Settings):
    """What a site tells when its labels are audited."""

    tell: Literal["all", "rate"] = "all"  # how many of its labels are taken for which; or only how many are doubtful


class Deployment(Settings):
    """What a federation of real sites needs besides an experiment."""

    RENAMED: ClassVar = {"veil": "privacy"}

    out: Path = Path("runs")  # folder of the runs, on the server
    sites: Count = 2  # to wait for before the first round
    quorum: Count | None = None  # sites whose answers a round must have; more than half of `sites` if not given
    deadline: Positive = 600.0  # seconds that sites have to answer in an exchange
    wait: Positive = 600.0  # seconds that sites have to appear before the first round
    exchange: Literal["two", "one"] = "two"  # report, then training; or both at once, judged by the last reports
    classes: Names = ()  # in the order of the model's outputs; if not given, all that the first sites have
    privacy: ReportPrivacy = ReportPrivacy()  # of reports; if not given, `privacy.reports` of the run
    audit: AuditOptions | None = None  # the sites' labels are audited in place of training a model

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

    RENAMED: ClassVar = {"veil": "privacy"}

    site: SiteName
    data: Path | None = None  # images or a table, and labels, in any layout of docs/data.md
    store: Path | None = None  # what the site remembers between messages
    device: Device = "cpu"
    threads: Count = 1  # of PyTorch; only one gives the bits of a simulation
    privacy: ReportPrivacy | None = None  # in place of what the server asks for
    audit: AuditTelling = AuditTelling()
    corrected_labels: Path | None = None  # labels that people read again: a corrected.csv, or a folder that has one
    policy: Path | None = None  # the site's own rules; else those of site-policy.toml in its store, if it is there
    sums: bool = True  # tells the sums of its table when it joins; else numbers are standardised without its rows

    @property
    def folder(self) -> Path:
        """Where the site remembers things."""
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return self.store or Path(state) / "fedpca" / self.site
