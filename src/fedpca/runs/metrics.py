"""Every number by which a model is judged: evaluation, tables, figures, page, progress and trackers read this list.

A metric of your own is a `Metric` that `evaluation.accuracy = "package.module:name"` names, or an entry point of the
group `fedpca.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedpca.errors import SettingsError
from fedpca.settings.registry import Registry

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Predictions:
    """A model's outputs on one test group, and what metrics have in common; classes without a sample do not count."""

    probs: Floats  # (N, classes)
    labels: Labels  # (N,)

    def __post_init__(self) -> None:
        if len(self.occurring) < 2:
            only = self.occurring[0] if len(self.occurring) else "-"
            raise ValueError(f"a test group needs at least two classes, got only class {only}")

    @cached_property
    def counts(self) -> Labels:  # of each class, those that do not occur included
        return np.bincount(self.labels, minlength=self.probs.shape[1])

    @cached_property
    def occurring(self) -> Labels:  # classes that have a sample
        return np.flatnonzero(self.counts)

    @cached_property
    def hits(self) -> NDArray[np.bool_]:  # whether the largest probability is the label's, for each sample
        return np.asarray(self.probs.argmax(axis=1) == self.labels)

    @cached_property
    def recalls(self) -> Floats:  # the share of hits in each class that occurs
        found = np.bincount(self.labels[self.hits], minlength=len(self.counts))
        return found[self.occurring] / self.counts[self.occurring]

    @cached_property
    def pairs(self) -> Floats:  # the AUC of each class that occurs against each other one
        return pairwise_auc(self.probs, self.labels)[np.ix_(self.occurring, self.occurring)]


@dataclass(frozen=True)
class Metric:
    """A number between 0 and 1 that says how good predictions are; larger is better.

    >>> from fedpca import Metric
    >>> worst = Metric("worst_class", "worst class", "the worst class", lambda seen: float(seen.recalls.min()))
    >>> worst.in_tables
    True
    """

    name: str  # in records and settings
    head: str  # of a column
    words: str  # in a sentence
    of: Callable[[Predictions], float]
    in_tables: bool = True  # else it is only recorded
    is_accuracy: bool = False  # shown only where `evaluation.accuracy` chooses it


def pairwise_auc(probs: Floats, labels: Labels) -> Floats:
    """A[i, j]: how probable it is that class i's output is larger for a sample of class i than for one of class j.

    Both AUCs are means of this one matrix (Hand and Till 2001); ties count half. 0 where a class does not occur.
    """
    classes = probs.shape[1]
    counts = np.bincount(labels, minlength=classes)
    result = np.zeros((classes, classes))
    for positive in range(classes):
        scores = probs[:, positive]
        order = np.argsort(scores, kind="stable")
        below = np.zeros((len(labels) + 1, classes))  # how many samples of each class lie below each rank
        np.cumsum(np.eye(classes)[labels[order]], axis=0, out=below[1:])
        own, ranked = scores[labels == positive], scores[order]
        beaten = below[np.searchsorted(ranked, own, "left")] + below[np.searchsorted(ranked, own, "right")]
        result[positive] = beaten.sum(axis=0) / 2 / np.maximum(counts * counts[positive], 1)
    return result


def _one_versus_rest(predictions: Predictions) -> float:
    """The mean over classes of the AUC against all others."""
    sizes = predictions.counts[predictions.occurring].astype(np.float64)
    others = sizes * (1 - np.eye(len(sizes)))  # (positive class, other class)
    return float(((predictions.pairs * others).sum(axis=1) / others.sum(axis=1)).mean())


def _one_versus_one(predictions: Predictions) -> float:
    """The mean over pairs of classes of the AUC of one against the other."""
    return float(predictions.pairs[~np.eye(len(predictions.pairs), dtype=bool)].mean())


_OWN = (
    Metric("acc", "ACC", "accuracy", lambda seen: float(seen.hits.mean()), is_accuracy=True),
    Metric("bacc", "balanced ACC", "balanced accuracy", lambda seen: float(seen.recalls.mean()), is_accuracy=True),
    Metric("auc", "AUC", "AUC", _one_versus_rest),
    Metric("auc_ovo", "AUC, one versus one", "one-versus-one AUC", _one_versus_one, in_tables=False),
)
METRICS = Registry("metric", Metric, {metric.name: metric for metric in _OWN}, group="fedpca.metrics")


def recorded_metrics(accuracy: str) -> tuple[str, ...]:
    """What a round's line holds of each test group: every metric that has a name, and the chosen accuracy."""
    return tuple(dict.fromkeys((*METRICS, accuracy)))


def shown_metrics(accuracy: str) -> tuple[str, ...]:
    """What people see: the metric chosen as accuracy, then the package's others that are no accuracy."""
    others = (metric.name for metric in _OWN if metric.in_tables and not metric.is_accuracy)
    return tuple(dict.fromkeys((accuracy, *others)))


def measure(predictions: Predictions, accuracy: str) -> dict[str, float]:
    """Every recorded metric of these predictions."""
    return {name: METRICS[name].of(predictions) for name in recorded_metrics(accuracy)}


def check_metric(name: str) -> None:
    """Refuses a value of `evaluation.accuracy` that names no metric."""
    try:
        METRICS[name]
    except SettingsError as error:
        raise SettingsError(f"evaluation.accuracy: {error}") from None
