"""Who was found to be mislabeled, and how that compares with the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedpca.results.read.runs import Run


@dataclass(frozen=True)
class Found:
    """One method's accusations over its seeds; means over the last rounds, None where the truth is not known."""

    precision: float | None
    recall: float | None
    f1: float | None
    accused_common: float | None  # clients that are neither rare nor mislabeled
    accused_rare: float | None
    accused: dict[str, int]  # client: in how many seeds' last round
    seeds: int


def found(runs: Sequence[Run]) -> Found | None:
    """What these runs of one method found; None if none of them names groups so far."""
    naming = [run for run in runs if any(_groups(run))]
    if not naming:
        return None
    judged = [said for run in naming for line in _last(run) if (said := line.get("identification"))]
    accused: Counter[str] = Counter()
    for run in naming:
        ids = run.rounds[-1]["clients"]["id"]
        accused.update(client for client, group in zip(ids, _groups(run), strict=True) if group == "mislabeled")
    names = ("precision", "recall", "f1", "accused_common", "accused_rare")
    means = {name: fmean(said[name] for said in judged) if judged else None for name in names}
    return Found(**means, accused=dict(accused), seeds=len(naming))


def _last(run: Run) -> Sequence[dict[str, Any]]:
    return run.rounds[-run.settings.evaluation.last_rounds :]


def _groups(run: Run) -> list[str | None]:
    """Each client's group in the latest round; nothing for methods that name none."""
    return (run.rounds[-1].get("clients") or {}).get("group") or []
