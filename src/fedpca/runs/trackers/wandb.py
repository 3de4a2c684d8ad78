"""Weights & Biases: runs of one project."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpca.runs.cell import Cell
from fedpca.runs.trackers.base import Log, Scalars, Status, TrackerKind, name_of, settings_of

ENVIRONMENT = {  # nothing about code and machine is sent, and a server that does not answer is found soon
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_MACHINE_INFO": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
    "WANDB_INIT_TIMEOUT": "30",
    "WANDB_FINISH_TIMEOUT": "60",
    "WANDB_FINISH_TIMEOUT_RAISES": "true",
}


@dataclass(frozen=True)
class Wandb:
    """Runs of one project; whether they are sent at once, later or never is up to wandb's own environment."""

    option: str
    project: str  # or entity/project
    folder: Path

    def open_log(self, cell: Cell, known: str | None) -> Log:
        """A run is known by its id; offline nothing can be looked up, and a resumed run is written again as a whole."""
        import wandb

        entity, _, project = self.project.rpartition("/")
        run = wandb.init(
            entity=entity or None,
            project=project,
            name=name_of(cell),
            id=known,
            resume="allow" if known else None,
            config=settings_of(cell),
            dir=os.environ.get("WANDB_DIR", self.folder),
            reinit="create_new",
        )
        return _WandbLog(run.id, run.step - 1, run)


@dataclass(frozen=True)
class _WandbLog:
    id: str
    last_round: int
    run: Any  # wandb's Run

    def add(self, round: int, scalars: Scalars) -> None:
        self.run.log(scalars, step=round)

    def end(self, status: Status) -> None:
        self.run.finish(exit_code={"finished": 0, "stopped": 255, "failed": 1}[status])


def _open(option: str, where: str, out: Path, experiment: str) -> Wandb:
    return Wandb(option, where or os.environ.get("WANDB_PROJECT") or experiment, out)


TRACKER = TrackerKind("wandb", _open, ("wandb.sdk",), ENVIRONMENT)
