"""The run folder: its files, what stands in them, and how they are read and appended to; no torch, no pickle.

| file | what | written |
|---|---|---|
| `settings.toml` | the run's settings, complete | at the beginning |
| `about.json` | `About`: data, clients and the truth about them, where anybody knows it | at the beginning |
| `rounds.jsonl` | a `RoundLine` each round | appended, as soon as the model after the round has been tested |
| `checkpoint/state.safetensors` | what the run needs to go on | every `checkpoint_every` rounds, and at the end |
| `checkpoint/previous.safetensors` | the one before, for the case that the last is damaged | with it, until the end |
| `final.safetensors` | the weights after the last round, under the model's own names | at the end |
| `features.safetensors` | on request, what the final model sees in some images | at the end |
| `summary.json` | `Summary`; marks a finished run | last |
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from fedpca.atomic import locked, to_disk, write_whole
from fedpca.errors import RunError

SETTINGS, ABOUT, ROUNDS = "settings.toml", "about.json", "rounds.jsonl"
CHECKPOINT, PREVIOUS, FINAL, FEATURES, SUMMARY = (
    "checkpoint/state.safetensors",
    "checkpoint/previous.safetensors",
    "final.safetensors",
    "features.safetensors",
    "summary.json",
)


class ClientColumns(TypedDict):
    """What is known of each client after a round, as parallel lists; a column of which nothing is known is null."""

    id: list[str]
    loss: list[float | None] | None
    dispersion: list[float | None] | None
    group: list[str | None] | None  # common, rare or mislabeled, as the method judges
    suspicion: list[float | None] | None  # with `auto` the estimated share of wrong labels
    suspicion_low: NotRequired[list[float | None] | None]  # ends of its 95 % interval, where the method has one
    suspicion_high: NotRequired[list[float | None] | None]
    answer: NotRequired[list[str | None] | None]  # of this round alone: mislabeled, not mislabeled or cannot tell
    weight: list[float | None] | None  # in the aggregation


class ChoiceLine(TypedDict):
    """What a method decided by itself in a round: see `core.Choice`."""

    what: str
    value: float
    text: str


class AttackLine(TypedDict):
    """What the attackers of a round gained."""

    clients: NotRequired[list[str]]  # who attacks in this round
    success: NotRequired[float | None]  # share of marked test images that are called the target; null: no backdoor
    weight: NotRequired[float | None]  # of all attackers in the aggregation; null for rules without weights
    judged: list[str] | None  # attackers that are judged mislabeled; null if nobody is judged
    innocents_judged: list[str] | None  # honest clients with right labels that are judged mislabeled


class RoundLine(TypedDict):
    """One round."""

    round: int  # counted from 1
    groups: dict[str, dict[str, float]] | None  # metrics by test group, or by site; null if the round is not tested
    clients: ClientColumns
    reference: NotRequired[dict[str, float] | None]  # what labels were compared with, where they were: slope, agreement
    choices: NotRequired[list[ChoiceLine]]  # what the method decided by itself, where it does
    identification: dict[str, float] | None  # precision, recall, … of naming the mislabeled; null without the truth
    weights: dict[str, float] | None  # what rare and mislabeled clients weigh together; null without the truth
    left_out: dict[str, str]  # clients whose answers could not be used, and why
    bounded: NotRequired[dict[str, str]]  # clients whose influence `[aggregation]` bounded, and how; left out if none
    privacy: NotRequired[dict[str, float]]  # epsilon spent so far: of reports, central, together; else left out
    attack: NotRequired[AttackLine]  # in a simulation with attackers
    exchanges: NotRequired[list[dict[str, Any]]]  # with real sites: kind, seconds, bytes sent and received, answers
    seconds: NotRequired[float]  # that it took; always there in files


class EarlierPlan(TypedDict):
    """How many rounds the run was planned for until a round, after which it went on with another number."""

    rounds: int
    until: int


class About(TypedDict):
    """What the run works on and with."""

    setting: NotRequired[str]  # its name, where the experiment has several
    run: NotRequired[str]  # with real sites: the id by which they find their memory of the run again
    method: NotRequired[dict[str, Any]]  # summary, family, judges, defaults: nobody who reads it needs the code
    dataset: str
    classes: list[str]
    shape: list[int]  # of an image
    clients: dict[str, list[Any]]  # id, size (training images) and, where the truth is known, wrong_labels
    truth: NotRequired[str]  # about labels, in a simulation: assumed, unknown or column
    rare: NotRequired[list[str]]  # whose images the scenario corrupted
    mislabeled: NotRequired[list[str]]  # only where the truth is known
    test_images: dict[str, int]  # by test group, or by site
    test_classes: NotRequired[dict[str, list[int]]]  # in a simulation: images of each class, by test group
    uncounted_groups: NotRequired[dict[str, str]]  # test groups that are too small to count, and why
    skipped_images: list[str]
    privacy: NotRequired[dict[str, Any]]  # reports, central: epsilon, delta, noise, releases; only where there is one
    attack: NotRequired[dict[str, Any]]  # clients, words, since: who attacks in a simulation, how, from when on
    corrected_labels: NotRequired[str]  # a fingerprint of data.corrected_labels, where it is set
    table: NotRequired[list[dict[str, Any]]]  # of numbers: name, mean, deviation, levels, marks_missing of each column
    deployment: NotRequired[dict[str, Any]]  # its settings, with real sites
    versions: dict[str, str]
    earlier_plans: NotRequired[list[EarlierPlan]]  # where the method depends on the number of rounds, which was changed


# method, seed, rounds; worst, average and std of each metric; rare_weight_times_not_mislabeled, w_r (1 - w_m); seconds
Summary = dict[str, Any]


def locked_run(folder: Path) -> AbstractContextManager[None]:
    """Keeps a second process from writing the same run folder."""
    return locked(folder, f"{folder} is being written by another process")


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run that was begun."""
    return all((folder / name).exists() for name in (SETTINGS, ABOUT, ROUNDS))


def finished_rounds(folder: Path) -> int | None:
    """How many rounds the folder's finished run has; None if it is not finished."""
    path = folder / SUMMARY
    if not path.exists():
        return None
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["rounds"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(
            f"{path} cannot be read ({error!r}): choose another --out, or delete {folder} and start again"
        ) from None


def recorded_rounds(folder: Path) -> int:
    """How many rounds the folder's record has."""
    path = folder / ROUNDS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def append_round(folder: Path, line: RoundLine) -> None:
    """Adds one round to the record."""
    with (folder / ROUNDS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")
        to_disk(file)  # before the checkpoint that counts on it


def keep_rounds(folder: Path, rounds: int) -> None:
    """Cuts the record back to its first rounds; those after the checkpoint are played again, to the same values."""
    path = folder / ROUNDS
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if len(lines) < rounds or any(not line.endswith(b"\n") for line in lines[:rounds]):
        raise RunError(f"{path} has fewer than the {rounds} rounds of its checkpoint; delete {folder} and start again")
    if len(lines) > rounds:
        write_whole(path, b"".join(lines[:rounds]))


def read_about(folder: Path) -> About:
    """What the folder's run works on."""
    try:
        about: About = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"the run folder {folder} cannot be read: {error}") from None
    return about


def read_rounds(folder: Path) -> list[RoundLine]:
    """The rounds so far."""
    try:
        return parse_rounds((folder / ROUNDS).read_bytes())[0]
    except (OSError, ValueError) as error:
        raise RunError(f"the run folder {folder} cannot be read: {error}") from None


def parse_rounds(content: bytes) -> tuple[list[RoundLine], int]:
    """The rounds in what was read of the record, and their bytes; a line that is still being written is passed over."""
    whole = content[: content.rfind(b"\n") + 1]
    return [_parse_line(line) for line in whole.splitlines()], len(whole)


def _parse_line(text: bytes) -> RoundLine:
    try:
        line: RoundLine = json.loads(text)
    except RecursionError:
        raise ValueError(f"a line of {ROUNDS} is nested too deeply: {text[:40]!r}") from None
    if not isinstance(line, dict):
        raise ValueError(f"a line of {ROUNDS} must be a JSON object, got {text[:40]!r}")
    return line
