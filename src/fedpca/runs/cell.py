"""The runs of an experiment: which there are, where each is kept, which are finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedpca.errors import RunError
from fedpca.runs.check import one_run, read_stored
from fedpca.runs.folder import CHECKPOINT, SETTINGS, RoundLine, finished_rounds, recorded_rounds
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import flatten


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: one setting, one method, one seed, one folder."""

    settings: Experiment  # of this run alone, complete
    folder: Path
    setting: str = ""  # its name, where the experiment has several

    @property
    def method(self) -> str:
        return self.settings.methods[0]

    @property
    def seed(self) -> int:
        return self.settings.seeds[0]

    @property
    def name(self) -> str:  # what distinguishes it from the experiment's other runs
        return f"{self.setting}: " * bool(self.setting) + f"{self.method} seed {self.seed}"


Watch = Callable[[Cell, RoundLine], None]  # called after every round


def cells(experiment: Experiment, out: Path, setting: str = "") -> list[Cell]:
    """Every run of one setting, seed by seed, so that all methods have a result early."""
    return [
        Cell(one_run(experiment, method, seed), out / setting / method.replace(":", "-") / f"seed-{seed}", setting)
        for seed in experiment.seeds
        for method in experiment.methods
    ]


def cells_of_all(settings: Mapping[str, Experiment], out: Path) -> list[Cell]:
    """Every run of every setting: seed by seed, so that all have a result early, then setting by setting.

    The methods of a setting follow one another, so that its federation is made once per seed.
    """
    every = [cell for name, experiment in settings.items() for cell in cells(experiment, out, name)]
    seeds = list(dict.fromkeys(cell.seed for cell in every))
    return sorted(every, key=lambda cell: seeds.index(cell.seed))


def is_done(cell: Cell) -> bool:
    """Whether the run is finished, with as many rounds as are wanted now."""
    return finished_rounds(cell.folder) == cell.settings.rounds


def is_tested(settings: Experiment, round: int) -> bool:
    """Whether the model after a round is to be tested."""
    evaluation = settings.evaluation
    return round > 0 and (round % evaluation.every == 0 or round > settings.rounds - evaluation.last_rounds)


def nobody_counts(settings: Experiment, line: RoundLine) -> bool:
    """Whether no answer of a round could be used: all who were asked are left out."""
    asked = max(1, int(settings.participation * len(line["clients"]["id"]) + 0.5))
    return len(line["left_out"]) >= asked


def check_folder(cell: Cell, resume: bool) -> None:
    """Refuses a folder that holds other settings, or any run at all unless it is to be continued.

    The number of rounds may be another one, if the run can go on to it.
    """
    path = cell.folder / SETTINGS
    if not is_done(cell):
        _require_place(cell.folder)
    if not path.exists():
        return
    if not resume:
        raise RunError(f"{cell.folder} holds a run already: continue it with --resume, or choose another --out")
    stored = read_stored(path)
    if stored.model_copy(update={"rounds": cell.settings.rounds}) != cell.settings:
        changed = ", ".join(_differences(stored, cell.settings))
        raise RunError(f"{cell.folder} was begun with other settings ({changed}): choose another --out")
    if stored.rounds != cell.settings.rounds:
        _require_no_privacy(cell)
        _require_way_on(cell.folder, cell.settings.rounds)


def _require_no_privacy(cell: Cell) -> None:
    """Refuses other rounds where noise was made for those that were planned."""
    own = cell.settings.privacy
    if own.reports.epsilon is not None or own.central.epsilon is not None:
        raise RunError(
            f"{cell.folder} was begun with privacy.*.epsilon, whose noise is for the rounds that were planned: keep "
            "rounds as it was, or choose another --out"
        )


def _require_way_on(folder: Path, wanted: int) -> None:
    """Refuses to take rounds back, and to go on from a finished run that kept nothing to go on from."""
    from fedpca.runs.checkpoint import checkpoint_round  # here: it needs PyTorch

    played = max(recorded_rounds(folder), checkpoint_round(folder) or 0)
    if wanted < played:
        raise RunError(
            f"{folder} has {played} rounds, and rounds = {wanted} would take some of them back: set rounds to {played} "
            "or more, or choose another --out"
        )
    if finished_rounds(folder) is not None and not (folder / CHECKPOINT).exists():
        raise RunError(
            f"{folder} is finished after {played} rounds and kept only its final weights, from which it cannot go on "
            "(an earlier version of fedpca played it, or what it had to keep was larger than the model and "
            f"keep_large_checkpoint was not set): choose another --out for a run of {wanted}, set rounds = {played} "
            "again, or choose other runs with --method and --seed"
        )


def _require_place(folder: Path) -> None:
    """Refuses a folder that cannot be made or written; nothing is made yet, so that an error leaves nothing behind."""
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.exists(place))
    if not there.is_dir():
        raise RunError(f"the run folder {folder} cannot be made: {there} is a file: choose another --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunError(f"the run folder {folder} cannot be made: {there} may not be written: choose another --out")


def _differences(stored: Experiment, wanted: Experiment) -> Iterator[str]:
    """Each changed key with both values, old first."""
    old, new = flatten(stored.model_dump(mode="json")), flatten(wanted.model_dump(mode="json"))
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            yield f"{key} was {old.get(key)!r}, is now {new.get(key)!r}"
