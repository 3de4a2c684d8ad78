"""Which classes a client takes for which others, beyond what the reference clients do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from fedpca.auditing.summary import Summary, Table
from fedpca.parts.server.wrong_labels import INTERVAL

SHOWN = 5  # pairs of a client
MIN_IMAGES = 3  # of a pair: fewer are chance, and would be somebody's images


@dataclass(frozen=True)
class Confusion:
    """So many images that are given one class and are likely of another, beyond the reference's share."""

    given: int
    likely: int
    images: float
    share: float  # of the client's images


def reference_rates(summaries: Sequence[Summary]) -> Table | None:
    """Of the labels of each class, the share that is likely of each other one at the reference clients."""
    joints = [own.joint for own in summaries if own.joint is not None]
    if not joints:
        return None
    classes = range(len(joints[0]))
    sums = [[sum(joint[i][j] for joint in joints) for j in classes] for i in classes]
    return tuple(tuple(value / max(sum(row), 1.0) for value in row) for row in sums)


def confused_classes(summary: Summary, rates: Table | None) -> tuple[Confusion, ...] | None:
    """The pairs that exceed the reference beyond chance, most first; None where the client tells its rate alone."""
    if summary.joint is None or rates is None:
        return None
    found = []
    for given, row in enumerate(summary.joint):
        total = sum(row)
        for likely, count in enumerate(row):
            expected = total * rates[given][likely]
            more = count - expected
            if likely != given and more >= MIN_IMAGES and more > INTERVAL * sqrt(expected + count / 4 + 1):
                found.append(Confusion(given, likely, more, more / summary.images))
    return tuple(sorted(found, key=lambda own: (-own.images, own.given, own.likely))[:SHOWN])
