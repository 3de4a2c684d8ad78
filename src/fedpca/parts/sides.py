"""Two methods in one: each keeps to its own side of the client's memory, of the reports and of the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from fedpca.core import (
    LABELS,
    Aggregate,
    ClientId,
    Diagnose,
    Diagnosis,
    Enter,
    Fold,
    Order,
    Outcome,
    Report,
    Server,
    ShownTo,
    Site,
    Update,
    Verdict,
    Weights,
    When,
)
from fedpca.parts.abilities import Direction, LogitShift, OfMany, ability
from fedpca.screening import Claims, claims_of, joint_claims

Rest = ParamSpec("Rest")
Result = TypeVar("Result")
Entry = TypeVar("Entry")


class OwnMemory(MutableMapping[str, Tensor]):
    """What one side keeps on a client, under its own names; corrected labels alone are both sides'."""

    def __init__(self, whole: MutableMapping[str, Tensor], side: str) -> None:
        self.whole, self.side = whole, side

    def _key(self, key: str) -> str:
        return key if key == LABELS else f"{self.side}/{key}"

    def __getitem__(self, key: str) -> Tensor:
        return self.whole[self._key(key)]

    def __setitem__(self, key: str, value: Tensor) -> None:
        self.whole[self._key(key)] = value

    def __delitem__(self, key: str) -> None:
        del self.whole[self._key(key)]

    def __iter__(self) -> Iterator[str]:
        prefix = f"{self.side}/"
        return (key.removeprefix(prefix) for key in list(self.whole) if key == LABELS or key.startswith(prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def own_site(site: Site, side: str) -> Site:
    """What one side's code may see on a client: its memory, its verdict, and what its rule shows."""
    return replace(site, memory=OwnMemory(site.memory, side), order=own_order(site.order, side))


def own_order(order: Order, side: str) -> Order:
    """What the server tells one side."""
    verdict = order.verdict.sides.get(side, Verdict())
    return order._replace(verdict=verdict, shown=own_entries(order.shown, side))


def own_server(server: Server, side: str) -> Server:
    """What one side's rule may see on the server: its opinions, and what it keeps."""
    memory, shown = own_entries(server.memory, side), own_entries(server.shown, side)
    return replace(server, diagnosis=of_side(server.diagnosis, side), memory=memory, shown=shown)


def own_entries(entries: Mapping[str, Entry], side: str) -> dict[str, Entry]:
    """Those of one side, under the names that it gave them."""
    prefix = f"{side}/"
    return {name.removeprefix(prefix): entry for name, entry in entries.items() if name.startswith(prefix)}


def both_entries(entries: Mapping[str, Mapping[str, Entry]]) -> dict[str, Entry]:
    """Those of every side in one, each under its side's name."""
    return {f"{side}/{name}": entry for side, own in entries.items() for name, entry in own.items()}


def of_side(diagnosis: Diagnosis, side: str) -> Diagnosis:
    """The opinions of one of several combined methods."""
    return {client: verdict.sides.get(side, Verdict()) for client, verdict in diagnosis.items()}


@dataclass(frozen=True)
class SidedPart(Generic[Rest, Result]):
    """A client's part of one side: selection, loss or step."""

    side: str
    part: Callable[Concatenate[Site, Rest], Result]

    def __call__(self, site: Site, *rest: Rest.args, **named: Rest.kwargs) -> Result:
        return self.part(own_site(site, self.side), *rest, **named)

    @property
    def claims(self) -> Claims:
        """The part's: whoever binds a report to its side is `SidedReports`."""
        return claims_of(self.part)

    @property
    def of_many(self) -> OfMany[Any] | None:
        """The part's, if it has it; see `abilities`, as for those below."""
        of_many = ability(self.part, "of_many")
        return of_many and (lambda sites: of_many([own_site(site, self.side) for site in sites]))

    @property
    def idle(self) -> Callable[[Order], bool] | None:
        """Whether its own opinion leaves the client nothing to do."""
        idle = ability(self.part, "idle")
        return idle and (lambda order: idle(own_order(order, self.side)))

    @property
    def logit_shift(self) -> LogitShift | None:
        """The part's: it looks at labels alone, which are both sides'."""
        shift: LogitShift | None = ability(self.part, "logit_shift")
        return shift

    @property
    def pull(self) -> float | None:
        """The part's: it looks at no client."""
        pull: float | None = ability(self.part, "pull")
        return pull

    @property
    def direction(self) -> Direction | None:
        """The part's, told what its side is told."""
        direction: Direction | None = ability(self.part, "direction")
        return direction and (
            lambda weights, gradient, order: direction(weights, gradient, own_order(order, self.side))
        )

    @property
    def direction_for(self) -> Callable[[Sequence[Site]], Direction] | None:
        """The part's, of its side of the clients."""
        made = ability(self.part, "direction_for")
        return made and (lambda sites: made([own_site(site, self.side) for site in sites]))


@dataclass(frozen=True)
class SidedReports(Generic[Rest]):
    """Reports of several sides in one, each number under its side's name."""

    parts: tuple[tuple[str, Callable[Concatenate[Site, Rest], Report]], ...]  # side, part

    def __call__(self, site: Site, *rest: Rest.args, **named: Rest.kwargs) -> Report:
        """All numbers; labels that one side corrects here are the other's from the next exchange on."""
        given, reports = site.memory.get(LABELS), {}
        corrected = given
        for side, part in self.parts:
            reports[side] = part(own_site(site, side), *rest, **named)
            if (now := site.memory.get(LABELS)) is not given:
                corrected = now
                _set_labels(site.memory, given)
        _set_labels(site.memory, corrected)
        return both_entries(reports)

    @property
    def claims(self) -> Claims:
        """What each side can say, under its name."""
        return joint_claims(claims_of(part).under(side) for side, part in self.parts)

    @property
    def needs_features(self) -> bool:
        """Whether the report of a side does."""
        return any(ability(part, "needs_features") for _, part in self.parts)


def _set_labels(memory: MutableMapping[str, Tensor], labels: Tensor | None) -> None:
    if labels is None:
        memory.pop(LABELS, None)
    else:
        memory[LABELS] = labels


@dataclass(frozen=True)
class SidedDiagnose:
    """Each side's opinion of what was reported to it; a client's group is the last one that a side names."""

    parts: tuple[tuple[str, Diagnose], ...]  # side, part

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """The opinions, each side's own inside the common one."""
        known = dict(diagnosis)
        for side, part in self.parts:
            own = {client: own_entries(report, side) for client, report in reports.items()}
            for client, verdict in part(of_side(known, side), own, when).items():
                known[client] = _with_side(known.get(client, Verdict()), side, verdict)
        return known


def _with_side(whole: Verdict, side: str, own: Verdict) -> Verdict:
    return replace(
        whole,
        group=own.group or whole.group,
        suspicion=whole.suspicion if own.suspicion is None else own.suspicion,
        report={**whole.report, **own.report},
        sides={**whole.sides, side: own},
    )


@dataclass(frozen=True)
class SidedEnter:
    """What becomes of the opinions of those sides of which a stage begins."""

    parts: tuple[tuple[str, Enter], ...]  # side, part

    def __call__(self, diagnosis: Diagnosis) -> Diagnosis:
        """The opinions with these sides' renewed."""
        known = dict(diagnosis)
        for side, part in self.parts:
            for client, verdict in part(of_side(known, side)).items():
                known[client] = replace(known[client], sides={**known[client].sides, side: verdict})
        return known


@dataclass(frozen=True)
class MixRules:
    """The mean of two rules' results from the same updates, `share` the part of the first; counters are the first's."""

    first: tuple[str, Aggregate]  # its side, and the rule
    second: tuple[str, Aggregate]
    share: float

    def __call__(self, server: Server) -> MixFold:
        folds = {side: rule(own_server(server, side)) for side, rule in (self.first, self.second)}
        return MixFold(folds, self.share)


class MixFold:
    """Two aggregations of the same updates under way."""

    def __init__(self, folds: Mapping[str, Fold], share: float) -> None:
        self.folds, self.share = folds, share

    def add(self, client: ClientId, update: Update) -> None:
        """Gives the update to both, each with what its own side reports."""
        for side, fold in self.folds.items():
            fold.add(client, replace(update, report=own_entries(update.report, side)) if update.report else update)

    def finish(self) -> Outcome:
        """The mean of both states, and of the weights where both rules have them."""
        sides = {side: fold.finish() for side, fold in self.folds.items()}
        one, two = sides.values()
        params = replace(
            one.params,
            weights=_between(two.params.weights, one.params.weights, self.share),
            buffers=_between(two.params.buffers, one.params.buffers, self.share),
        )
        memory = both_entries({side: own.memory for side, own in sides.items()})
        shown = both_entries({side: own.shown for side, own in sides.items()})
        shown_to = _both_shown_to({side: own.shown_to for side, own in sides.items()})
        weights, bounded = self._weights(one.weights, two.weights), {**one.bounded, **two.bounded}
        return Outcome(params, weights, memory=memory, shown=shown, shown_to=shown_to, sides=sides, bounded=bounded)

    def _weights(self, one: Weights | None, two: Weights | None) -> Weights | None:
        if one is None or two is None:
            return None
        return {
            client: self.share * one.get(client, 0.0) + (1 - self.share) * two.get(client, 0.0)
            for client in {**one, **two}
        }


def _both_shown_to(given: Mapping[str, ShownTo]) -> ShownTo:
    """What each client alone sees of every side, each vector under its side's name, as its memory has it."""
    clients = list(dict.fromkeys(client for own in given.values() for client in own))
    return {
        client: {
            f"{side}/{name}": f"{side}/{key}"
            for side, own in given.items()
            for name, key in own.get(client, {}).items()
        }
        for client in clients
    }


def _between(start: Tensor, end: Tensor, share: float) -> Tensor:
    """`share` of the way from start to end; equal vectors stay equal to the bit."""
    return torch.lerp(start.double(), end.double(), share).to(start.dtype)  # never in place: it may be doubles
