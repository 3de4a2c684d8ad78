"""A run that goes on with another number of rounds than it was begun with: what is said, and what is recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fedpca.atomic import write_json, write_whole
from fedpca.methods.horizon import depends_on_rounds
from fedpca.runs.cell import Cell
from fedpca.runs.check import method_of, read_stored
from fedpca.runs.checkpoint import checkpoint_round
from fedpca.runs.folder import ABOUT, SETTINGS, EarlierPlan, read_about
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import write_table


class Change(NamedTuple):
    """Another number of rounds, from a round on."""

    played: int
    before: int
    now: int


def replan(cell: Cell, played: int) -> None:
    """Writes the settings of a run that goes on with another number of rounds.

    Where the rounds so far depend on the number before, `about.json` says so. That is written first: a run that is
    killed in between is replanned once more, to the same record.
    """
    stored, about = read_stored(cell.folder / SETTINGS), read_about(cell.folder)
    change = Change(played, stored.rounds, cell.settings.rounds)
    known = about.get("earlier_plans", [])
    plans = earlier_plans(known, change) if known or _matters(cell.settings, change) else []
    if plans != known:
        rest = {key: value for key, value in about.items() if key != "earlier_plans"}
        write_json(cell.folder / ABOUT, {**rest, **({"earlier_plans": plans} if plans else {})})
    if change.before != change.now:
        write_whole(cell.folder / SETTINGS, write_table(cell.settings))


def earlier_plans(known: Sequence[EarlierPlan], change: Change) -> list[EarlierPlan]:
    """The plans that rounds were played under, but for the present one.

    >>> earlier_plans([], Change(played=30, before=30, now=60))
    [{'rounds': 30, 'until': 30}]
    >>> earlier_plans([{"rounds": 30, "until": 30}], Change(played=30, before=600, now=30))  # thought better of it
    []
    """
    plans, begun = list(known), known[-1]["until"] if known else 0
    if change.played > begun and change.before != change.now:
        plans.append({"rounds": change.before, "until": change.played})
    return plans[:-1] if plans and plans[-1]["rounds"] == change.now else plans


def going_on(cells: Sequence[Cell]) -> Iterator[str]:
    """In words: which runs go on with another number of rounds, and where that is not the same as a run of so many."""
    changes: dict[Change, list[Cell]] = {}
    for cell in cells:
        if change := _change_of(cell):
            changes.setdefault(change, []).append(cell)
    for change, own in changes.items():
        runs = f"{len(own)} runs go" if len(own) > 1 else f"{own[0].name} goes"
        yield f"{runs} on after round {change.played}: rounds was {change.before}, is now {change.now}"
        if methods := ", ".join(dict.fromkeys(cell.method for cell in own if _matters(cell.settings, change))):
            yield (
                f"warning: {methods}: rounds 1 to {change.played} were played under a plan of {change.before} rounds, "
                f"which {'these methods depend' if ',' in methods else 'this method depends'} on: a run of "
                f"{change.now} from the start would differ (about.json keeps this as earlier_plans)"
            )


def _change_of(cell: Cell) -> Change | None:
    path = cell.folder / SETTINGS
    before = read_stored(path).rounds if path.exists() else cell.settings.rounds
    if before == cell.settings.rounds:
        return None
    played = checkpoint_round(cell.folder)
    return Change(played, before, cell.settings.rounds) if played else None


def _matters(settings: Experiment, change: Change) -> bool:
    """Whether the rounds so far depend on how many were planned."""
    if change.before == change.now:
        return False
    before, now = (method_of(settings.model_copy(update={"rounds": rounds})) for rounds in (change.before, change.now))
    return depends_on_rounds(before, now, change.played)
