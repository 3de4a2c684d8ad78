"""Paired differences between methods: seed by seed, since both share federation and first weights there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedpca.results.read.runs import Run

LEVEL = 0.95  # of the intervals


@dataclass(frozen=True)
class Difference:
    """A score of one method minus that of another, over the seeds that both have, in percentage points."""

    mean: float
    std: float | None  # over the seeds, with n - 1; None for one seed
    low: float | None  # 95 % interval of the mean, by Student's t over the seeds; None for one seed
    high: float | None
    seeds: int


def compare(one: Sequence[Run], other: Sequence[Run], over_groups: str) -> Difference | None:
    """The accuracy of one method's runs minus that of another's; None if they share no seed or no test group.

    Both are compared on the groups that all of these runs have tested.
    """
    shared = {run.seed for run in one} & {run.seed for run in other}
    sides = [[run for run in runs if run.seed in shared] for runs in (one, other)]
    tested = [run.last().keys() for runs in sides for run in runs]
    groups = [group for group in (tested[0] if tested else ()) if all(group in own for own in tested)]
    if not groups:
        return None
    ours, theirs = (by_seed(runs, over_groups, groups) for runs in sides)
    return difference([ours[seed] - theirs[seed] for seed in sorted(shared)])


def difference(gains: Sequence[float]) -> Difference:
    """The mean of differences, one for each seed, with its interval."""
    mean, seeds = fmean(gains), len(gains)
    if seeds < 2:
        return Difference(mean, None, None, None, seeds)
    from scipy.stats import t

    std = stdev(gains)
    half = float(t.ppf((1 + LEVEL) / 2, seeds - 1)) * std / seeds**0.5
    return Difference(mean, std, mean - half, mean + half, seeds)


def by_seed(
    runs: Sequence[Run], over_groups: str, groups: Sequence[str] = (), metric: str | None = None
) -> dict[int, float]:
    """Of one method, by seed: its worst or average accuracy over the test groups, mean of the last rounds, in percent.

    The worst group is the one that is worst over all these seeds. Without `groups` those of the first run count.
    `metric` takes the place of the accuracy.
    """
    last = {run.seed: run.last(metric) for run in runs}
    counted = groups or tuple(runs[0].last(metric))
    means = {seed: {group: 100 * fmean(own[group]) for group in counted} for seed, own in last.items()}
    return OVER_GROUPS[over_groups](means)


def _worst(means: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    groups = next(iter(means.values()))
    poorest = min(groups, key=lambda group: fmean(own[group] for own in means.values()))
    return {seed: own[poorest] for seed, own in means.items()}


def _average(means: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    return {seed: fmean(own.values()) for seed, own in means.items()}


OVER_GROUPS: dict[str, Callable[[Mapping[int, Mapping[str, float]]], dict[int, float]]] = {
    "worst": _worst,
    "average": _average,
}
