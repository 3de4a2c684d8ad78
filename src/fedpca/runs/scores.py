"""Worst, average and spread over the test groups, as the paper's tables define them; a run's summary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean, stdev

import numpy as np

from fedpca.runs.folder import RoundLine, Summary
from fedpca.runs.metrics import shown_metrics
from fedpca.settings.experiment import EvaluationSettings, Experiment

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Spread:
    """A mean over rounds and seeds, and the deviation around it."""

    mean: float
    std: float  # not a number where one value alone has none

    @property
    def known_std(self) -> float | None:
        """The deviation, if there is one."""
        return None if isnan(self.std) else self.std


@dataclass(frozen=True)
class Headline:
    """One metric over the test groups."""

    worst: Spread  # of the group with the smallest mean: not the mean of each round's smallest
    average: Spread  # over groups
    std: Spread  # over groups, within each round


def headline(groups: Mapping[str, Sequence[float]], rounds: Sequence[int] = ()) -> Headline:
    """The three figures of one metric; each group lists its value in the same rounds and seeds.

    Deviations are those of all values or, with the number of `rounds` of each seed, those over seeds.
    """
    table = np.array([groups[name] for name in groups], dtype=np.float64)  # (groups, rounds x seeds)
    worst = table[int(np.argmin(table.mean(axis=1)))]
    figures = (worst, table.mean(axis=0), table.std(axis=0))
    return Headline(*(spread_over_seeds(values, rounds) if rounds else spread(values) for values in figures))


def spread(values: Sequence[float] | Array) -> Spread:
    """Mean and population deviation."""
    array = np.asarray(values, dtype=np.float64)
    return Spread(float(array.mean()), float(array.std()))


def spread_over_seeds(values: Array, rounds: Sequence[int]) -> Spread:
    """Mean and sample deviation of the seeds' means; the values are those of each seed's rounds in turn."""
    means = [float(own.mean()) for own in np.split(values, np.cumsum(rounds)[:-1])]
    return Spread(fmean(means), stdev(means) if len(means) > 1 else nan)


def fairness_robustness(shares: Sequence[Mapping[str, float]]) -> float:
    """w_r (1 - w_m), averaged over rounds: what rare clients weigh, times what the mislabeled do not."""
    return float(np.mean([share["rare"] * (1 - share["mislabeled"]) for share in shares]))


def summarize(settings: Experiment, lines: Sequence[RoundLine]) -> Summary:
    """A finished run's figures over its last rounds, of the test groups that were tested in all of them."""
    tested = [groups for line in lines[-settings.evaluation.last_rounds :] if (groups := line["groups"])]
    always = [group for group in (tested[0] if tested else ()) if all(group in groups for groups in tested)]
    metrics = dict.fromkeys((*shown_metrics(EvaluationSettings().accuracy), settings.evaluation.accuracy))
    shares = [line["weights"] for line in lines if line["weights"]]
    return {
        "method": settings.methods[0],
        "seed": settings.seeds[0],
        "rounds": len(lines),
        **{name: _means({group: [groups[group][name] for groups in tested] for group in always}) for name in metrics},
        "rare_weight_times_not_mislabeled": fairness_robustness(shares) if len(shares) == len(lines) else None,
        "seconds": round(sum(line["seconds"] for line in lines), 2),
    }


def _means(groups: Mapping[str, Sequence[float]]) -> dict[str, float] | None:
    if not groups:
        return None
    found = headline(groups)
    return {"worst": found.worst.mean, "average": found.average.mean, "std": found.std.mean}
