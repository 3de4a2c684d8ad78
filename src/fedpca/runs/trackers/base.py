"""What a tracker is, and what all of them are given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, Protocol

from fedpca.runs.cell import Cell
from fedpca.runs.folder import RoundLine
from fedpca.runs.metrics import shown_metrics
from fedpca.settings.toml import flatten

Scalars = dict[str, float]  # a round's numbers by name
Status = Literal["finished", "stopped", "failed"]
LEFT_OUT = "clients/left_out"  # a number that every round has


class Log(Protocol):
    """What one tracker holds of one run."""

    @property
    def id(self) -> str: ...  # by which a resumed run finds it again

    @property
    def last_round(self) -> int: ...  # that it held when it was opened

    def add(self, round: int, scalars: Scalars) -> None: ...  # wholly or not at all

    def end(self, status: Status) -> None: ...


class Tracker(Protocol):
    """One `--log-to`."""

    @property
    def option(self) -> str: ...  # its text, without a password

    def open_log(self, cell: Cell, known: str | None) -> Log: ...  # of that id if it is still there, else a new one


@dataclass(frozen=True)
class TrackerKind:
    """A tracker that `--log-to` may name."""

    name: str
    open: Callable[[str, str, Path, str], Tracker]  # the option's text, what follows its =, --out, experiment's name
    modules: tuple[str, ...] = ()  # what it imports; all of it comes with the extra of the same name
    environment: Mapping[str, str] = field(default_factory=dict)  # set where the user's own does not say otherwise


def scalars_of(line: RoundLine, accuracy: str) -> Scalars:
    """A round's numbers under the names that all trackers show; what is not known is not there."""
    tested, identification, weights = line["groups"] or {}, line["identification"] or {}, line["weights"] or {}
    values: dict[str, float | None] = {LEFT_OUT: len(line["left_out"]), "seconds": line.get("seconds")}
    for metric in shown_metrics(accuracy):
        if by_group := {group: own[metric] for group, own in tested.items() if own.get(metric) is not None}:
            values |= {f"{metric}/{group}": value for group, value in by_group.items()}
            values |= {f"{metric}/worst": min(by_group.values()), f"{metric}/average": fmean(by_group.values())}
    values |= {f"weight/{group}": weights.get(group) for group in ("rare", "mislabeled")}
    values |= {f"identification/{name}": identification.get(name) for name in ("precision", "recall", "f1")}
    if groups := line["clients"]["group"]:
        values["clients/judged_mislabeled"] = groups.count("mislabeled")
    if answers := line["clients"].get("answer"):
        values["clients/cannot_tell"] = answers.count("cannot tell")
        values |= {f"reference/{name}": value for name, value in (line.get("reference") or {}).items()}
    return {name: float(value) for name, value in values.items() if value is not None}


def settings_of(cell: Cell) -> dict[str, str | float | bool]:
    """The run's settings under dotted names, for trackers that take no lists and no + in a name."""
    table = cell.settings.model_dump(mode="json", exclude_none=True, exclude={"methods", "seeds"})
    flat = {"method": cell.method, "seed": cell.seed, **flatten(table)}
    return {
        key.replace("+", "_plus_"): value if isinstance(value, str | int | float) else json.dumps(value)
        for key, value in flat.items()
    }


def name_of(cell: Cell) -> str:
    """method/seed-N, as the run folder ends, below the setting where there are several."""
    return "/".join(filter(None, (cell.setting, *cell.folder.parts[-2:])))


def without_password(text: str) -> str:
    """The text without what an address says before its @."""
    return re.sub(r"//[^/\s]*@", "//…@", text)
