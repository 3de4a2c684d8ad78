"""Run folders as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpca.faults import RunError
from fedpca.scenario import Experiment, read_experiment


@dataclass(frozen=True)
class Run:
    """One method and seed: its settings, what it works on, and its rounds so far."""

    folder: Path
    settings: Experiment
    about: dict[str, Any]
    rounds: Sequence[dict[str, Any]]

    @property
    def method(self) -> str:
        """The method's name."""
        return self.settings.methods[0]

    @property
    def seed(self) -> int:
        """The training seed."""
        return self.settings.seeds[0]

    @property
    def is_done(self) -> bool:
        """Whether all rounds were played."""
        return len(self.rounds) >= self.settings.rounds

    def scenario(self) -> str:
        """What must be equal for two runs to stand in one table: everything but method and seed."""
        return self.settings.model_copy(update={"methods": ("-",), "seeds": (0,), "method": {}}).model_dump_json()

    def last(self, metric: str) -> dict[str, list[float]]:
        """The metric of each test group over the last tested rounds."""
        tested = [line["groups"] for line in self.rounds if line["groups"]]
        last = tested[-self.settings.evaluation.last_rounds :]
        return {group: [groups[group][metric] for groups in last] for group in (last[0] if last else {})}

    def title(self) -> str:
        """The scenario in one line."""
        about, noise = self.about, self.settings.noise
        text = f"{self.settings.name}: {about['dataset']}, {len(about['clients']['id'])} clients"
        if about["rare"]:
            text += f", {len(about['rare'])} rare"
        if about["mislabeled"]:
            text += f", {len(about['mislabeled'])} mislabeled ({noise.labels:.0%} of their labels)"
        return f"{text}, {self.settings.rounds} rounds"


def by_scenario(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that may stand in one table, together; scenarios in the order in which they first occur."""
    scenarios: dict[str, list[Run]] = {}
    for run in runs:
        scenarios.setdefault(run.scenario(), []).append(run)
    return list(scenarios.values())


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Every run below these folders that has finished at least one round, in the order of their paths."""
    paths = {found.parent for folder in folders for found in _existing(folder).rglob("settings.toml")}
    runs = [run for path in sorted(paths) if (run := read_run(path)).rounds]
    if not runs:
        listed = ", ".join(str(folder) for folder in folders)
        raise RunError(f"no run with a finished round below {listed}; `fedpca run` makes them")
    return runs


def read_run(folder: Path) -> Run:
    """One run folder; a line that is still being written is passed over."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    lines = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    rounds = [json.loads(line) for line in lines if line.endswith("\n")]
    return Run(folder, read_experiment(folder / "settings.toml"), about, rounds)


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}")
    return folder
