"""Who was judged mislabeled, and how that compares with the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from fedpca.results.read.clients import ClientState, client_states
from fedpca.results.read.runs import Run
from fedpca.runs.folder import RoundLine


@dataclass(frozen=True)
class Estimated:
    """A share of wrong labels with its 95 % interval."""

    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Judgements:
    """One method's judgements over its seeds; means over the last rounds, None where the truth is not known."""

    precision: float | None
    recall: float | None
    f1: float | None
    accused_common: float | None  # judged mislabeled, but neither rare nor mislabeled
    accused_rare: float | None
    accused: dict[str, int]  # client: in how many seeds' last round it is judged mislabeled
    seeds: int
    cannot_tell: dict[str, int] = field(default_factory=dict)  # the same of those of whom nobody can tell
    estimates: dict[str, Estimated] = field(default_factory=dict)  # of the accused, where one seed estimates them

    def clients(self) -> str:
        """Who is judged mislabeled, those of some seeds only with their number."""
        return self._names(self.accused)

    def untold(self) -> str:
        """Of whom it cannot be told, in the same way."""
        return self._names(self.cannot_tell)

    def _names(self, counts: Mapping[str, int]) -> str:
        named = sorted(counts.items(), key=lambda item: (len(item[0]), item[0]))
        return ", ".join(client if n == self.seeds else f"{client} ({n})" for client, n in named) or "nobody"


MEANS = ("precision", "recall", "f1", "accused_common", "accused_rare")


def judgements(runs: Sequence[Run]) -> Judgements | None:
    """What these runs of one method judged; None if none of them has judged anybody so far."""
    judging = [run for run in runs if any(_groups(run))]
    if not judging:
        return None
    known = [run for run in judging if run.about.get("mislabeled") is not None]
    measured = [values for run in known for line in _last(run) if (values := line.get("identification"))]
    states = [state for run in judging for state in client_states(run)]
    accused = Counter(state.client for state in states if state.group == "mislabeled")
    untold = Counter(state.client for state in states if state.cannot_tell)
    means = {name: fmean(values[name] for values in measured) if measured else None for name in MEANS}
    estimates = _estimates(states) if len(judging) == 1 else {}
    return Judgements(**means, accused=dict(accused), seeds=len(judging), cannot_tell=dict(untold), estimates=estimates)


def _estimates(states: Sequence[ClientState]) -> dict[str, Estimated]:
    accused = [state for state in states if state.group == "mislabeled"]
    return {c.client: Estimated(c.suspicion, c.low, c.high) for c in accused if c.low is not None}


def _last(run: Run) -> Sequence[RoundLine]:
    return run.rounds[-run.settings.evaluation.last_rounds :]


def _groups(run: Run) -> list[str | None]:
    """Each client's group in the latest round; empty for methods that judge nobody."""
    return run.rounds[-1]["clients"].get("group") or []
