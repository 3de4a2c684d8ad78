"""Which runs are to be played, by how many jobs and workers, and playing them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedpca.core import Net
from fedpca.data.datasets import Dataset
from fedpca.data.federation import Federation
from fedpca.data.known import truth_words
from fedpca.errors import RunError, UserError
from fedpca.methods.base import base
from fedpca.models.build import build_model
from fedpca.runs.attacked import attack_words
from fedpca.runs.cell import Cell, Watch, cells_of_all, check_folder
from fedpca.runs.check import plan_of
from fedpca.runs.part import WHOLE, Part
from fedpca.runs.private import require_privacy
from fedpca.runs.processes import play_in_processes
from fedpca.runs.run import Place, Prepared, in_process, run_cell
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import shorten
from fedpca.simulate.batched import TRAINED, training_batching

Progress = Callable[[int, int], None]  # images read so far, of how many


@dataclass(frozen=True)
class Schedule:
    """Runs that are to be played, and how."""

    cells: Sequence[Cell]
    jobs: int  # runs at the same time
    workers: Mapping[str, int]  # of each run, by the name of its setting
    words: Sequence[str]  # the same for people, a line for all settings that are played alike
    prepared: Prepared  # holds the first run's data


def every_run(settings: Mapping[str, Experiment], out: Path, resume: bool, part: Part = WHOLE) -> list[Cell]:
    """All runs of an experiment, or those of a part, finished or not; refuses folders that hold something else.

    Folders of other parts are not looked at: others may be writing them. A part is the same whatever is finished.
    """
    cells = part.of(cells_of_all(settings, out))
    try:
        for cell in cells:
            check_folder(cell, resume)
    except OSError as error:
        place = shorten(str(out))
        raise RunError(f"the run folder {place} cannot be used ({error.strerror}): choose another --out") from None
    for cell in {(cell.setting, cell.method): cell for cell in cells}.values():
        with naming(cell.setting):
            require_privacy(cell.settings)
    return cells


def schedule(
    cells: Sequence[Cell], jobs: int, workers: int | None, data_dir: Path | None, progress: Progress | None = None
) -> Schedule:
    """How these runs are played; reads the data of all settings, so that errors are found before any is played."""
    jobs, prepared = min(jobs, len(cells)), Prepared(data_dir)
    first_cells = {cell.setting: cell for cell in reversed(cells)}  # the first to be played is last: its data are kept
    counts, words = dict[str, int](), dict[str, str]()
    for setting, cell in first_cells.items():
        with naming(setting):
            data = prepared.of(cell, progress)
            counts[setting] = workers or default_workers(cell.settings, data[1], jobs)
            words[setting] = words_of(cell.settings, *data, jobs, counts[setting])
    return Schedule(cells, jobs, counts, together(dict(reversed(words.items()))), prepared)


def words_of(experiment: Experiment, dataset: Dataset, federation: Federation, jobs: int, workers: int) -> str:
    """What there is to say of a setting before it is played: how, and what of its data is not as one might think."""
    return (
        describe(experiment, federation, jobs, workers)
        + _truth(experiment)
        + rounded_away(experiment, federation)
        + _skipped(dataset)
        + _uncounted(federation)
        + _attack(attack_words(experiment, federation))
    )


def play_all(scheduled: Schedule, watch: Watch, place: Place = in_process) -> None:
    """Plays the runs to their end, one after another or in processes side by side; `place` is where clients are."""
    prepared, workers = scheduled.prepared, scheduled.workers
    if scheduled.jobs > 1:
        prepared.kept.clear()  # decoded and found good; every process makes its own
        play_in_processes(scheduled.cells, scheduled.jobs, workers, prepared.data_dir, watch)
        return
    for cell in scheduled.cells:
        run_cell(cell, *prepared.of(cell), workers[cell.setting], watch, place=place)


def default_workers(
    experiment: Experiment,
    federation: Federation,
    jobs: int = 1,
    probe: Net | None = None,
    cores: int | None = None,
) -> int:
    """As many as each job has cores, but no more than clients; one for models whose passes draw random numbers.

    `cores` are all that the jobs have together: those of this machine that this process may use, if it is not said.
    """
    if experiment.device != "cpu":
        return 1  # it does many things at a time by itself
    probe = probe or build_model(experiment.model, federation.shape, len(federation.classes), 0)
    cores = cores or usable_cores()
    return 1 if probe.draws else max(1, min(cores // jobs, len(federation.shards)))


def usable_cores() -> int:
    """The cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(experiment: Experiment, federation: Federation, jobs: int, workers: int) -> str:
    """How a setting's runs are played, in words: what was chosen for this model and machine."""
    net = build_model(experiment.model, federation.shape, len(federation.classes), 0)
    runs = f"{jobs} runs at a time, each with " if jobs > 1 else ""
    text = f"{len(federation.shards)} clients; {runs}{workers} worker{'s' * (workers > 1)} of one thread"
    text += f", models on {experiment.device}" if experiment.device != "cpu" else ""
    if (batching := training_batching(net, base(plan_of(experiment)))) is None:
        return f"{text}, a client at a time each"
    where = (
        f"; they are so small that one of the {workers} workers does them all"
        if workers > 1 and not batching.threads
        else ""
    )
    return f"{text}, {min(TRAINED, len(federation.shards))} clients together where the method allows it{where}"


@contextmanager
def naming(setting: str) -> Iterator[None]:
    """Errors inside say which setting they are of, where it has a name."""
    try:
        yield
    except UserError as error:
        if not setting:
            raise
        raise UserError(f"setting {setting!r}: {error}") from None


def rounded_away(experiment: Experiment, federation: Federation) -> str:
    """A warning for each kind of client that the settings ask for and that so few clients do not have."""
    truth, clients = federation.truth, len(federation.shards)
    flipped = None if experiment.data.truth_column else truth.mislabeled  # by the column others may be mislabeled
    shares = (
        ("rare", "rare.share", experiment.rare.share, truth.rare),
        ("mislabeled", "noise.clients", experiment.noise.clients, flipped),
    )
    return "".join(
        f"\nwarning: {key} = {share:g} of {clients} clients rounds to none, so nobody is {kind}: "
        "take more clients or a larger share"
        for kind, key, share, found in shares
        if share > 0 and found == ()
    )


def _truth(experiment: Experiment) -> str:
    words = truth_words(experiment.data, experiment.noise)
    return f"; {words}" if words else ""


def _skipped(dataset: Dataset) -> str:
    if not dataset.skipped:
        return ""
    more = f" (and {len(dataset.skipped) - 1} more)" if len(dataset.skipped) > 1 else ""
    return f"\nskipped an unreadable image: {dataset.skipped[0]}{more}"


def _uncounted(federation: Federation) -> str:
    """Test groups that are left out of worst and average, in words."""
    listed = "; ".join(f"{group} ({why})" for group, why in federation.uncounted.items())
    return f"\ntest groups that are too small to count: {listed}" if listed else ""


def _attack(words: str) -> str:
    return f"\nattack: {words}" if words else ""


def together(words: Mapping[str, str]) -> list[str]:
    """A line for all settings that are played alike, with their names if they have any."""
    alike: dict[str, list[str]] = {}
    for setting, text in words.items():
        alike.setdefault(text, []).append(setting)
    named = {
        text: f"all {len(settings)} settings" if len(alike) == 1 and len(settings) > 3 else "; ".join(settings)
        for text, settings in alike.items()
    }
    return [f"{names}: {text}" if names else text for text, names in named.items()]
