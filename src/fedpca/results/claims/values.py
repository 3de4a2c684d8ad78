"""What claims are about: a score of one method's runs, seed by seed, and what clients report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from fedpca.results.read.differences import by_seed
from fedpca.results.read.runs import Run
from fedpca.results.tables.rows import WEIGHT
from fedpca.runs.scores import fairness_robustness, headline

LOWER_IS_BETTER = ("std_acc", "std_auc", "mislabeled_weight")


def values(runs: Sequence[Run], score: str) -> dict[int, float]:
    """A score by seed, of the seeds that have it: in percent, but for weights."""
    if score in WEIGHTS:
        known = [run for run in runs if run.about.get("rare") and run.rounds and all(r["weights"] for r in run.rounds)]
        return {run.seed: WEIGHTS[score]([line["weights"] or {} for line in run.rounds]) for run in known}
    kind, _, metric = score.partition("_")
    name = runs[0].accuracy if metric == "acc" else metric
    tested = [run for run in runs if name in run.metrics()]
    if kind == "std":
        return {run.seed: headline(_percent(run, name)).std.mean for run in tested}
    return by_seed(tested, kind, metric=name) if tested else {}


def _percent(run: Run, metric: str) -> dict[str, list[float]]:
    return {group: [100 * value for value in own] for group, own in run.last(metric).items()}


WEIGHTS: dict[str, Callable[[Sequence[Mapping[str, float]]], float]] = {  # of all rounds of a run
    WEIGHT: fairness_robustness,
    "rare_weight": lambda shares: fmean(share["rare"] for share in shares),
    "mislabeled_weight": lambda shares: fmean(share["mislabeled"] for share in shares),
}


def kind_means(run: Run, quantity: Literal["loss", "dispersion"]) -> dict[str, float]:
    """The mean of what the clients of each kind report in the last rounds; empty where they do not or nobody knows."""
    rare, mislabeled = run.about.get("rare"), run.about.get("mislabeled")
    if rare is None or mislabeled is None:
        return {}
    found: dict[str, list[float]] = {}
    for line in run.rounds[-run.settings.evaluation.last_rounds :]:
        for client, value in zip(line["clients"]["id"], line["clients"].get(quantity) or (), strict=False):
            kind = _kind(client, rare, mislabeled)
            if value is not None and kind:
                found.setdefault(kind, []).append(value)
    return {kind: fmean(own) for kind, own in found.items()}


def _kind(client: str, rare: Sequence[str], mislabeled: Sequence[str]) -> str:
    """Common, rare or mislabeled; nothing for a client that is both."""
    if client in rare:
        return "" if client in mislabeled else "rare"
    return "mislabeled" if client in mislabeled else "common"
