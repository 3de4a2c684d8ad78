"""What `fedpca.train` gives: the model, who is judged mislabeled, and the run as tables, page and folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpca.api.notebook import runs_html, shown_in_notebooks, table_html
from fedpca.api.results import Results
from fedpca.core import Net
from fedpca.data.given import UserData
from fedpca.errors import RunError
from fedpca.results.read.clients import client_states, column
from fedpca.results.read.runs import Run, read_run
from fedpca.runs.checkpoint import load_tensors
from fedpca.runs.folder import FINAL, RoundLine

BATCH = 128  # images per pass, as in tests


@dataclass(frozen=True)
class Result:
    """One finished run: `model`, `mislabeled`, `clients`, `rounds` and `scores`, and ways to keep and show it."""

    folder: Path
    run: Run
    net: Net  # the trained model with the scale of its images, on the CPU
    prepare: Callable[[UserData], Tensor]  # what goes into the net
    temporary: TemporaryDirectory[str] | None = None  # which holds the folder, and goes with this value

    @staticmethod
    def read(
        folder: Path,
        net: Net,
        prepare: Callable[[UserData], Tensor],
        temporary: TemporaryDirectory[str] | None = None,
    ) -> Result:
        """The run in a folder, its final weights put into the model."""
        net.module.load_state_dict(load_tensors(folder / FINAL))
        return Result(folder, read_run(folder), net, prepare, temporary)

    @property
    def model(self) -> nn.Module:
        """The trained model, in eval mode; bytes must be scaled before they go in, as `predict_proba` does."""
        return self.net.module

    @property
    def classes(self) -> list[str]:
        """The names of the model's outputs."""
        return self.run.about["classes"]

    @property
    def mislabeled(self) -> list[str]:
        """The clients judged mislabeled after the last round."""
        return _judged(self.run.rounds[-1])

    @cached_property
    def clients(self) -> pa.Table:
        """A row for each client after the last round: images, judgement, since when, suspicion, answer, weight, …"""
        states, about, last = client_states(self.run), self.run.about, self.run.rounds[-1]
        names = [state.client for state in states]
        columns: dict[str, list[Any]] = {
            "client": names,
            "images": about["clients"]["size"],
            "judged": [state.group for state in states],
            "since": [state.since for state in states],
            "suspicion": [state.suspicion for state in states],
            "suspicion_low": [state.low for state in states],
            "suspicion_high": [state.high for state in states],
            "answer": [state.answer for state in states],
            "weight": [state.weight for state in states],
        }
        columns |= {name: column(last, name, names) for name in ("loss", "dispersion")}
        return shown_in_notebooks(pa.table(columns))

    @cached_property
    def rounds(self) -> pa.Table:
        """A row for each round: worst and average of each metric over the test groups, who is judged mislabeled, …"""
        return shown_in_notebooks(pa.Table.from_pylist([_round(line) for line in self.run.rounds]))

    @cached_property
    def scores(self) -> pa.Table:
        """A row for each tested round and test group, with its metrics."""
        lines = [(line["round"], line["groups"] or {}) for line in self.run.rounds]
        rows = [{"round": number, "group": group, **own} for number, groups in lines for group, own in groups.items()]
        return shown_in_notebooks(pa.Table.from_pylist(rows))

    @torch.no_grad()
    def predict_proba(self, x: UserData) -> NDArray[np.float64]:
        """The probability of each class (N, classes) for images as those that were trained on."""
        self.model.eval()
        parts = [self.net(some).double().softmax(dim=1) for some in torch.split(self.prepare(x), BATCH)]
        return torch.cat(parts).numpy()

    def predict(self, x: UserData) -> list[str]:
        """The name of the most probable class of each image."""
        return [self.classes[number] for number in self.predict_proba(x).argmax(axis=1)]

    def save(self, path: str | Path) -> Path:
        """Copies the run to PATH/METHOD/seed-N, where `fedpca results PATH` finds it, and gives that folder."""
        target = Path(path) / self.run.method.replace(":", "-") / f"seed-{self.run.seed}"
        if target.resolve() == self.folder.resolve():
            return target
        if target.exists():
            raise RunError(f"{target} is there already: save to another folder")
        shutil.copytree(self.folder, target)
        return target

    def page(self, path: str | Path) -> Path:
        """Writes the page of this run to an HTML file."""
        return self.results.page(path)

    @property
    def results(self) -> Results:
        """The run as tables."""
        return Results(self.folder, (self.run,))

    def __repr__(self) -> str:
        found = ", ".join(self.mislabeled) or "nobody"
        return f"<{self.run.label()}, {len(self.run.rounds)} rounds; judged mislabeled: {found}>"

    def _repr_html_(self) -> str:
        return runs_html([self.run]) + table_html(self.clients)


def _judged(line: RoundLine) -> list[str]:
    clients = line["clients"]
    groups = clients.get("group") or []
    return [client for client, group in zip(clients["id"], groups, strict=False) if group == "mislabeled"]


def _round(line: RoundLine) -> dict[str, Any]:
    groups = line["groups"] or {}
    return {
        "round": line["round"],
        **_over_groups(groups),
        "mislabeled": _judged(line),
        "left_out": list(line["left_out"]),
        "seconds": line.get("seconds"),
    }


def _over_groups(groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Worst and average of each metric that all groups have."""
    values = {metric: [own.get(metric) for own in groups.values()] for own in groups.values() for metric in own}
    known = {metric: [v for v in found if v is not None] for metric, found in values.items()}
    known = {metric: found for metric, found in known.items() if len(found) == len(groups)}
    worst = {f"worst_{metric}": min(found) for metric, found in known.items()}
    return worst | {f"average_{metric}": sum(found) / len(found) for metric, found in known.items()}
