"""What a run says of each client: how it is judged, since when and how clearly, what it weighs, what it truly is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from fedpca.results.read.runs import Run
from fedpca.runs.folder import RoundLine

Line = RoundLine


@dataclass(frozen=True)
class ClientState:
    """One client after the last round; None is what the run does not record."""

    client: str
    group: str | None
    since: int | None  # first round of those, without a break, in which it has been judged as now
    suspicion: float | None
    weight: float | None  # share in the aggregation
    truth: str | None
    low: float | None = None  # ends of the suspicion's 95 % interval
    high: float | None = None
    answer: str | None = None  # of the last round alone: mislabeled, not mislabeled or cannot tell

    @property
    def cannot_tell(self) -> bool:
        """Whether it is not judged mislabeled only because nobody can tell."""
        return self.answer == "cannot tell" and self.group != "mislabeled"


STATE = ("suspicion", "weight", "suspicion_low", "suspicion_high", "answer")


def client_states(run: Run) -> list[ClientState]:
    """Every client of a run that has played a round, in the record's order."""
    clients, kinds, last = clients_of(run), truth(run) or {}, run.rounds[-1]
    groups, values = column(last, "group", clients), [column(last, name, clients) for name in STATE]
    return [
        ClientState(client, group, since, suspicion, weight, kinds.get(client), *estimate)
        for client, group, since, suspicion, weight, *estimate in zip(
            clients, groups, judged_since(run), *values, strict=True
        )
    ]


def clients_of(run: Run) -> list[str]:
    """Every client: those that the run began with, then those that came later."""
    later = (client for line in run.rounds for client in line["clients"]["id"])
    return list(dict.fromkeys([*run.about["clients"]["id"], *later]))


def column(line: Line, name: str, clients: Sequence[str]) -> list[Any]:
    """One value of each client in one round; None where there is none."""
    values: list[Any] | None = {**line["clients"]}.get(name)  # type: ignore[assignment] # any column
    if values is None:
        return [None] * len(clients)
    if line["clients"]["id"] == clients:
        return list(values)
    known = dict(zip(line["clients"]["id"], values, strict=True))
    return [known.get(client) for client in clients]


def known_of(run: Run, name: str) -> list[Any]:
    """A value of each client that the run began with, such as size; None for who joined later, or if unknown."""
    known = run.about["clients"]
    values = dict(zip(known["id"], known.get(name) or (), strict=False))
    return [values.get(client) for client in clients_of(run)]


def judged_since(run: Run) -> list[int | None]:
    """For each client the first round, without a break until now, in which it was judged as now; None: not judged."""
    clients = clients_of(run)
    columns = [column(line, "group", clients) for line in run.rounds]
    numbers = [line["round"] for line in run.rounds]
    return [_since(groups, numbers) for groups in zip(*columns, strict=True)]


def _since(groups: Sequence[str | None], numbers: Sequence[int]) -> int | None:
    if groups[-1] is None:
        return None
    return numbers[-sum(1 for _ in takewhile(lambda group: group == groups[-1], reversed(groups)))]


def judging_began(run: Run) -> int | None:
    """The first round in which anybody was judged, after any warm-up; None if nobody has been."""
    return next((line["round"] for line in run.rounds if any(line["clients"].get("group") or ())), None)


def unchanged_since(run: Run) -> int:
    """The first round, without a break until now, in which the same clients were judged mislabeled as now."""
    sets = [_mislabeled(line) for line in run.rounds]
    same = sum(1 for _ in takewhile(lambda own: own == sets[-1], reversed(sets)))
    return run.rounds[-same]["round"]


def _mislabeled(line: Line) -> set[str] | None:
    """Who is judged mislabeled in a round; None if nobody is judged at all."""
    groups = line["clients"].get("group")
    if not any(groups or ()):
        return None
    return {client for client, group in zip(line["clients"]["id"], groups or (), strict=True) if group == "mislabeled"}


def truth(run: Run) -> dict[str, str] | None:
    """What each client truly is; None where nobody knows, as in a real federation."""
    if run.about.get("rare") is None or run.about.get("mislabeled") is None:
        return None
    rare, wrong = set(run.about["rare"]), set(run.about["mislabeled"])
    names = {(True, True): "rare and mislabeled", (True, False): "rare", (False, True): "mislabeled"}
    return {client: names.get((client in rare, client in wrong), "common") for client in clients_of(run)}


def threshold(run: Run) -> float | None:
    """The suspicion from which on a client can be judged mislabeled, where the method has such a line."""
    return run.identify.line if run.identify else None


def has_estimates(run: Run) -> bool:
    """Whether the suspicions are estimated shares of wrong labels with intervals, or will be once judging begins.

    Up to version 0.1 `auto` was another rule, now called `slope`: its runs record judgements without answers.
    """
    began = judging_began(run)
    if began is None:
        return run.identify is not None and run.identify.rule == "auto"
    return any(any(line["clients"].get("answer") or ()) for line in run.rounds)


def reference_of(run: Run) -> dict[str, float] | None:
    """What the last round compared labels with: slope and agreement; None if there was nothing."""
    return run.rounds[-1].get("reference")
