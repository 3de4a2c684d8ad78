"""The score of each test group, with its number of images and what that number leaves open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from fedpca.results.read.judgements import judgements
from fedpca.results.read.runs import Run

Z = 1.959964  # of the normal distribution, for 95 %
KINDS = frozenset({"common", "rare"})  # the groups of a scenario, which tables need not list


@dataclass(frozen=True)
class GroupScore:
    """One test group's accuracy in percent, the mean over the last rounds of every seed."""

    group: str
    images: int | None  # None where a run folder does not say
    classes: tuple[int, ...] | None  # images of each class
    score: float
    low: float | None  # of the 95 % interval; None for metrics other than plain accuracy
    high: float | None
    suspect: bool  # a client's own images, whose labels the method judges wrong and nobody knows to be right


@dataclass(frozen=True)
class GroupScores:
    """One method's test groups, and worst and average over them, with and without those whose labels are suspect."""

    groups: tuple[GroupScore, ...]
    worst: float
    worst_group: str
    average: float
    worst_without: float | None = None  # None where no group is suspect, or all are
    worst_group_without: str | None = None
    average_without: float | None = None

    @property
    def suspects(self) -> tuple[str, ...]:
        """The groups whose labels are suspect."""
        return tuple(group.group for group in self.groups if group.suspect)


def group_scores(runs: Sequence[Run]) -> GroupScores:
    """What one method reaches in each test group, over its seeds."""
    pooled: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for group, values in run.last().items():
            pooled[group] += [100 * value for value in values]
    suspects = _suspects(runs)
    groups = tuple(_score(runs[0], group, fmean(values), group in suspects) for group, values in pooled.items())
    sure = [group for group in groups if not group.suspect]
    without = _over(sure) if 0 < len(sure) < len(groups) else ()
    return GroupScores(groups, *_over(groups), *without)


def _over(groups: Sequence[GroupScore]) -> tuple[float, str, float]:
    """The worst score and its group, and the average."""
    lowest = min(groups, key=lambda group: group.score)
    return lowest.score, lowest.group, fmean(group.score for group in groups)


def _score(run: Run, group: str, score: float, suspect: bool) -> GroupScore:
    images = run.about.get("test_images", {}).get(group)
    classes = run.about.get("test_classes", {}).get(group)
    low, high = wilson(score / 100, images) if images and run.accuracy == "acc" else (None, None)
    return GroupScore(
        group,
        images,
        tuple(classes) if classes else None,
        score,
        None if low is None else 100 * low,
        None if high is None else 100 * high,
        suspect,
    )


def _suspects(runs: Sequence[Run]) -> set[str]:
    """The clients judged mislabeled in a seed's last round; nobody where the truth is known: test labels are true."""
    unknown = [run for run in runs if run.about.get("mislabeled") is None]
    judged = judgements(unknown) if unknown else None
    return set(judged.accused) if judged else set()


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of so many independent trials (Wilson 1927).

    >>> from fedpca.results.read.groups import wilson
    >>> [round(bound, 3) for bound in wilson(0.5, 100)]
    [0.404, 0.596]
    """
    spread = Z * sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    low, high = (share + Z**2 / (2 * count) + sign * spread for sign in (-1, 1))
    return max(0.0, low / (1 + Z**2 / count)), min(1.0, high / (1 + Z**2 / count))


def uncounted_groups(runs: Sequence[Run]) -> dict[str, str]:
    """Test groups that are too small to count, and why."""
    return dict(runs[0].about.get("uncounted_groups", {}))
