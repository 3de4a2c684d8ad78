"""Who was judged mislabeled, and how that compares with the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedpca.results.read.runs import Run
from fedpca.runs.folder import RoundLine


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

    def clients(self) -> str:
        """Who is judged mislabeled, those of some seeds only with their number."""
        accused = sorted(self.accused.items(), key=lambda item: (len(item[0]), item[0]))
        return ", ".join(client if n == self.seeds else f"{client} ({n})" for client, n in accused) or "nobody"


MEANS = ("precision", "recall", "f1", "accused_common", "accused_rare")


def judgements(runs: Sequence[Run]) -> Judgements | None:
    """What these runs of one method judged; None if none of them has judged anybody so far."""
    judging = [run for run in runs if any(_groups(run))]
    if not judging:
        return None
    known = [run for run in judging if run.about.get("mislabeled") is not None]
    measured = [values for run in known for line in _last(run) if (values := line.get("identification"))]
    accused: Counter[str] = Counter()
    for run in judging:
        ids = run.rounds[-1]["clients"]["id"]
        accused.update(client for client, group in zip(ids, _groups(run), strict=True) if group == "mislabeled")
    means = {name: fmean(values[name] for values in measured) if measured else None for name in MEANS}
    return Judgements(**means, accused=dict(accused), seeds=len(judging))


def _last(run: Run) -> Sequence[RoundLine]:
    return run.rounds[-run.settings.evaluation.last_rounds :]


def _groups(run: Run) -> list[str | None]:
    """Each client's group in the latest round; empty for methods that judge nobody."""
    return run.rounds[-1]["clients"].get("group") or []
