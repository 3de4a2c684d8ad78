"""Compares rules of identification on recorded reports: `python -m studies.compare RECORDINGS`.

Rules see rounds 11 to 25 with the same smoothing; figures are over the last ten rounds.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from fedpca.core import ClientId, Diagnosis, Report, When
from fedpca.data.truth import Truth
from fedpca.methods.identify import MixtureSettings, mixture_rule
from fedpca.parts.mixture import bic, fit
from fedpca.parts.server.diagnose import NameGroups, Smoothed
from fedpca.parts.server.identify import (
    Finding,
    Findings,
    WrongShares,
    on_plane,
    scaled,
)
from fedpca.runs.evaluate import identification
from studies.record import WARMUP

LAST = 10
PAPER = mixture_rule(MixtureSettings())


@dataclass(frozen=True)
class ShapedGroups:
    """One, two or three groups, whichever BIC prefers, and only in the shape that capacity dictates.

    Three: the paper's rule with a gate. Two: the group of larger loss is rare if it has clearly less dispersion, else
    mislabeled. One: nobody.
    """

    gate: float = 3.0

    def __call__(self, reports: Mapping[ClientId, Report]) -> Findings | None:
        plane = on_plane(reports)
        points = scaled(np.array(list(plane.values())).reshape(-1, 2))
        if len(np.unique(points, axis=0)) < 4:
            return None
        scores = {n: float(bic(fit(points, n, 9, "diag", ridge=1e-4, max_steps=100), "diag").min()) for n in (1, 2, 3)}
        best = min(scores, key=lambda n: scores[n])
        if best == 3:
            return replace(PAPER, covariance="diag", ridge=1e-4, min_margin=self.gate)(reports)
        groups = ["common"] * len(plane) if best == 1 else self._two(points)
        return {c: Finding(g, float(g == "mislabeled")) for c, g in zip(plane, groups, strict=True)}  # type: ignore[arg-type]

    def _two(self, points: np.ndarray) -> list[str]:
        fits = fit(points, 2, 9, "diag", ridge=1e-4, max_steps=100)
        start = int(fits.likelihood.argmax())
        means, members = fits.means[start], fits.responsibilities[start].argmax(axis=1)
        high = int(means[:, 0].argmax())
        within = np.sqrt(fits.covariances[start].mean(axis=0).diagonal())
        rise, fall = (means[high] - means[1 - high]) / within
        name = "rare" if fall < -self.gate else "mislabeled" if rise > self.gate else "common"
        return [name if m == high else "common" for m in members]


@dataclass(frozen=True)
class Shortfall:
    """The share by which labels agree less with predictions than the model is certain, against the other clients."""

    share: float = 0.25
    key: tuple[str, str] = ("agreement", "certainty")

    def __call__(self, reports: Mapping[ClientId, Report]) -> Findings | None:
        reported = {c: {**r, "slope": _ratio(r, *self.key), "slope_error": 0.0} for c, r in reports.items()}
        return WrongShares(self.share, 0.0)(reported)


def _ratio(report: Report, over: str, under: str) -> float:
    return float(report[over]) / float(report[under] if under else 1.0)  # type: ignore[arg-type]


RULES: dict[str, tuple[Callable[..., Findings | None], float]] = {  # and the threshold of smoothed evidence
    "paper": (PAPER, 0.5),
    "paper, gate 3": (replace(PAPER, min_margin=3), 0.5),
    "BIC of 1-3 groups, shaped": (ShapedGroups(), 0.5),
    "agreement / certainty": (Shortfall(), 0.25),
    "credence": (Shortfall(key=("credence", "")), 0.25),
    "slope, share 0.15": (WrongShares(0.15, 0.0), 0.15),
    "slope, share 0.2": (WrongShares(0.2, 0.0), 0.2),
    "slope, share 0.25 (auto)": (WrongShares(0.25, 0.0), 0.25),
    "auto as shipped, with certainty": (WrongShares(share=0.25, certainty=2.0), 0.25),
    "slope, share 0.3": (WrongShares(0.3, 0.0), 0.3),
}


def judge(
    rule: Callable[..., Findings | None], threshold: float, recording: Mapping[str, object]
) -> list[dict[str, float]]:
    """How well the rule does in each of the last rounds."""
    truth = Truth(tuple(recording["truth"]["rare"]), tuple(recording["truth"]["mislabeled"]), {})  # type: ignore[index]
    part, found = NameGroups(rule, Smoothed(0.5, threshold), min_confidence=0.9), []
    diagnosis: Diagnosis = {}
    for reports in recording["rounds"][WARMUP:]:  # type: ignore[index]
        reported = {c: {"slope_error": 0.0, **report} for c, report in reports.items()}
        diagnosis = part(diagnosis, reported, When(1, 1))
        verdict = identification(diagnosis, truth)
        nobody = {"f1": float(not truth.mislabeled), "accused_common": 0, "accused_rare": 0}
        found.append(verdict or nobody)
    return found[-LAST:]


def main() -> None:
    """Prints a table: rows are rules, columns kinds of federations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--misses", help="list the federations that this rule gets wrong")
    parser.add_argument("--only", default="", help="compare only the rules whose names contain this")
    options = parser.parse_args()
    recordings = [json.loads(path.read_text()) for path in sorted(options.recordings.glob("*.json"))]
    print(f"{len(recordings)} federations")
    for name, (rule, threshold) in RULES.items():
        if options.only not in name:
            continue
        figures: dict[str, list[float]] = defaultdict(list)
        for recording in recordings:
            found = judge(rule, threshold, recording)
            f1 = fmean(f["f1"] for f in found)
            accused = sum(f["accused_common"] + f["accused_rare"] for f in found)
            for column, value in columns(recording["spec"], f1, accused).items():
                figures[column].append(value)
            if options.misses == name and (f1 < 0.95 or accused):
                print(f"  {recording['spec']}: F1 {f1:.2f}, {accused} wrongly accused in {LAST} rounds")
        print(f"{name:33}" + "  ".join(f"{column} {fmean(v):.3f} ({len(v)})" for column, v in sorted(figures.items())))


def columns(spec: Mapping[str, float], f1: float, accused: float) -> dict[str, float]:
    """Where a federation counts: clean ones by whether nobody is accused, others by whether F1 is at least 0.95."""
    where = "CIFAR" if spec.get("cifar") else ""
    if spec["rho"] == 0:
        return {f"{where} none: nobody accused": float(accused == 0)}
    strength = "eta>=0.5" if spec["eta"] >= 0.5 else "eta 0.3"
    return {f"{where} {strength}: F1>=0.95": float(f1 >= 0.95), f"{where} {strength}: mean F1": f1}


if __name__ == "__main__":
    main()
