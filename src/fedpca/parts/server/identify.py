"""Who is common, rare or mislabeled, from one round's reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot, isfinite, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpca.core import ClientId, Estimate, Group, Report
from fedpca.parts.mixture import MAX_STEPS, Covariance, Fits, bic, fit

Floats = NDArray[np.float64]

STRONG = 6.0  # difference in the Bayesian information criterion that counts as strong evidence
FLOOR = 1e-12  # of the dispersion before its logarithm: all predictions in one class


@dataclass(frozen=True)
class Finding:
    """One client in one round: its group, and the evidence of wrong labels in [0, 1]."""

    group: Group
    evidence: float
    estimate: Estimate | None = None  # of its wrong labels, from rules that make one


Findings = Mapping[ClientId, Finding]
Identify = Callable[[Mapping[ClientId, Report]], Findings | None]  # None: the reports do not tell


@dataclass(frozen=True)
class ThreeGroups:
    """The paper's rule: a mixture of three on the loss-dispersion plane; the upper-right component is mislabeled.

    It always names a group, also where nobody is mislabeled. With a `min_margin`, only if the component stands that
    many deviations within groups away from the line through the other two.
    """

    starts: int
    covariance: Covariance
    ridge: float
    steps: int
    scale: Literal["minmax", "none"]
    membership: Literal["hard", "soft"]
    min_margin: float | None

    def __call__(self, reports: Mapping[ClientId, Report]) -> Findings | None:
        """Everybody's group; None if there are fewer than three different points or no fit has three groups."""
        plane = on_plane(reports)
        collapsed: dict[ClientId, Finding] = {
            client: Finding("rare", 0.0) for client, (_, spread) in plane.items() if spread <= log(FLOOR) + 1e-9
        }
        kept = {client: place for client, place in plane.items() if client not in collapsed}
        points = np.array(list(kept.values())).reshape(-1, 2)
        if len(set(kept.values())) < 3:
            return None
        points = scaled(points) if self.scale == "minmax" else points
        partition = self._vote(fit(points, 3, self.starts, self.covariance, self.ridge, self.steps))
        if partition is None:
            return None
        groups, evidence = partition
        return dict(zip(kept, map(Finding, groups, evidence), strict=True)) | collapsed

    def _vote(self, fits: Fits) -> tuple[list[Group], list[float]] | None:
        """The partition of the first start among those that name the most frequent set of mislabeled clients."""
        members = fits.responsibilities.argmax(axis=2)
        sound = np.isfinite(fits.responsibilities.reshape(self.starts, -1).sum(axis=1))
        partitions = [
            self._partition(fits, start, members[start])
            for start in range(self.starts)
            if sound[start] and len(set(members[start].tolist())) == 3
        ]
        if not partitions:
            return None
        accused = [tuple([group == "mislabeled" for group in groups]) for groups, _ in partitions]
        return partitions[accused.index(Counter(accused).most_common(1)[0][0])]

    def _partition(self, fits: Fits, start: int, members: NDArray[np.int64]) -> tuple[list[Group], list[float]]:
        resp, means = fits.responsibilities[start], fits.means[start]
        suspect, margin, normal = upper_right(means)
        names = _named(means, suspect)
        if self.min_margin is not None:
            within = np.sqrt(np.mean([normal @ cov @ normal for cov in fits.covariances[start]]))
            if margin < self.min_margin * within:
                names[suspect] = "common"
        evidence = resp[:, suspect] if self.membership == "soft" else (members == suspect).astype(float)
        accused = names[suspect] == "mislabeled"
        return [names[i] for i in members.tolist()], (evidence if accused else np.zeros(len(members))).tolist()


def upper_right(means: Floats) -> tuple[int, float, Floats]:
    """Which of three centroids (loss, dispersion) lies up-right of the line through the others, how far, its normal.

    The line must fall, and the centroid of smallest loss is never chosen: it is the common group. If none is left, the
    one with the largest sum of coordinates, with a margin of zero.
    """
    common = int(means[:, 0].argmin())
    distances = {i: distance_above(means, i) for i in range(3) if i != common}
    best = max(distances, key=lambda i: distances[i][0])
    if distances[best][0] > 0:
        return best, *distances[best]
    rest = [i for i in range(3) if i != common]
    return max(rest, key=lambda i: float(means[i].sum())), 0.0, np.full(2, np.sqrt(0.5))


def distance_above(means: Floats, i: int) -> tuple[float, Floats]:
    """How far centroid i lies up-right of the falling line through the other two, and that direction.

    Minus infinity if the line does not fall: then "up-right of it" means nothing.
    """
    (x, y), (x_i, y_i) = means[(i + 1) % 3].tolist(), means[i].tolist()
    run, rise = (means[(i + 2) % 3] - means[(i + 1) % 3]).tolist()
    if run * rise >= 0:
        return -np.inf, np.zeros(2)
    length = hypot(run, rise)
    across, up = abs(rise) / length, abs(run) / length
    return across * (x_i - x) + up * (y_i - y), np.array([across, up])


def _named(means: Floats, suspect: int) -> list[Group]:
    """Names of the components; of the two that are not suspect the common one has more dispersion for its loss."""
    one, two = (i for i in range(3) if i != suspect)
    common = one if means[one, 1] - means[one, 0] >= means[two, 1] - means[two, 0] else two
    return ["mislabeled" if i == suspect else "common" if i == common else "rare" for i in range(3)]


@dataclass(frozen=True)
class WrongShares:
    """Who has many uninformative labels, if anybody.

    Replacing a share of a client's labels by random ones takes that share from its `slope` (see `label_slopes`), while
    rare images leave the slope about as it is: they make the model unsure, and it says so. So 1 - slope / reference,
    the reference being the slope of clients with informative labels, estimates the share. A client is accused from
    `share` on, if the estimate is `certainty` standard errors above zero.
    """

    share: float
    certainty: float

    def __call__(self, reports: Mapping[ClientId, Report]) -> Findings | None:
        """Everybody's group and share; None if no client has a slope above zero, as before anything is learned."""
        slopes = {c: (s, e) for c, (s, e) in _pairs(reports, "slope", "slope_error").items() if isfinite(s)}
        level = reference([slope for slope, _ in slopes.values()], self.share)
        if level is None:
            return None
        estimates = {c: 1 - slope / level for c, (slope, _) in slopes.items()}
        sure = {c: estimates[c] > self.certainty * error / level for c, (_, error) in slopes.items()}
        evidence = {c: float(np.clip(estimates[c], 0, 1)) if sure[c] else 0.0 for c in slopes}
        innocent = {c: report for c, report in reports.items() if evidence.get(c, 0.0) < self.share}
        rare = rare_among(on_plane(innocent))
        return {
            c: Finding("mislabeled" if c not in innocent else "rare" if c in rare else "common", evidence[c])
            for c in slopes
        }


def reference(slopes: list[float], share: float) -> float | None:
    """The slope of informative labels: the median over clients that lose less than `share` against it.

    Found from the 70th percentile, so that up to 60 % of the clients may be mislabeled; neither that nor the median is
    drawn up by a minority of rare clients, whose slopes are often larger.
    """
    level = float(np.quantile(slopes, 0.7)) if slopes else 0.0
    for _ in range(3):
        if level <= 0:
            return None
        level = float(np.median([slope for slope in slopes if slope > (1 - share) * level]))
    return level


def rare_among(plane: Mapping[ClientId, tuple[float, float]]) -> set[ClientId]:
    """Those with less dispersion and more loss than the rest, where two groups explain the points much better than one.

    Much better is a Bayesian information criterion less by `STRONG`.
    """
    points = scaled(np.array(list(plane.values())).reshape(-1, 2))
    if len(np.unique(points, axis=0)) < 4:
        return set()
    one, two = (fit(points, groups, starts, "diag", 1e-4, MAX_STEPS) for groups, starts in ((1, 1), (2, 5)))
    best = int(bic(two, "diag").argmin())
    (loss_0, spread_0), (loss_1, spread_1) = two.means[best]
    if bic(two, "diag")[best] + STRONG > bic(one, "diag")[0] or (loss_0 - loss_1) * (spread_0 - spread_1) >= 0:
        return set()
    members = two.responsibilities[best].argmax(axis=1) == (0 if spread_0 < spread_1 else 1)
    return {client for client, inside in zip(plane, members, strict=True) if inside}


def on_plane(reports: Mapping[ClientId, Report]) -> dict[ClientId, tuple[float, float]]:
    """Loss and dispersion of the clients that reported both as finite numbers."""
    pairs = _pairs(reports, "loss", "dispersion")
    return {client: pair for client, pair in pairs.items() if isfinite(pair[0]) and isfinite(pair[1])}


def _pairs(reports: Mapping[ClientId, Report], one: str, other: str) -> dict[ClientId, tuple[float, float]]:
    """Two numbers of each client that reported both."""
    found = {client: (report.get(one), report.get(other)) for client, report in reports.items()}
    return {c: (a, b) for c, (a, b) in found.items() if isinstance(a, float) and isinstance(b, float)}


def scaled(points: Floats) -> Floats:
    """Each column stretched to [0, 1]; a constant one becomes 0."""
    if not len(points):
        return points
    low, high = points.min(axis=0), points.max(axis=0)
    stretched: Floats = (points - low) / np.where(high > low, high - low, 1.0)
    return stretched
