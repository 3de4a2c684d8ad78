"""Does what the paper claims hold in these runs? `python -m studies.claims RUNS…`, one table per scenario.

Differences of the worst group's accuracy are taken seed by seed: methods share federation and first weights there.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log, nan
from pathlib import Path
from statistics import fmean, stdev

from fedpca.results.read.runs import Run, by_scenario, find_runs, title

SINGLE = ("fedavg", "qfedavg", "fedce", "fedga", "fedism", "median", "rfa", "fedcorr", "fednoro", "hnobs")
RIVALS = (*SINGLE, "qfedavg+median", "fedce+rfa", "fedga+fedcorr", "fedism+fednoro")
OURS = ("fedpca-d", "fedpca-hs")
ABLATIONS = ("fedpca-wo-fairness", "fedpca-wo-robustness")
FAIR = ("fedavg", "qfedavg", "fedce", "fedga", "fedism")

Scores = Mapping[str, Mapping[int, float]]  # by method and seed, in percent


def worst(runs: Sequence[Run]) -> dict[int, float]:
    """Of one method, by seed: the accuracy of the group that is worst over all seeds, mean of the last rounds."""
    last = {run.seed: run.last(run.settings.evaluation.accuracy) for run in runs}
    groups = next(iter(last.values()))
    poorest = min(groups, key=lambda group: fmean(fmean(own[group]) for own in last.values()))
    return {seed: 100 * fmean(own[poorest]) for seed, own in last.items()}


def difference(scores: Scores, one: str, other: str) -> str:
    """One's worst accuracy minus the other's: mean and deviation over the seeds, and what that says."""
    both = sorted(scores[one].keys() & scores[other].keys())
    gains = [scores[one][seed] - scores[other][seed] for seed in both]
    spread = stdev(gains) if len(gains) > 1 else float("nan")
    clear = "more than the deviation" if abs(fmean(gains)) > spread else "within the deviation"
    return f"{fmean(gains):+.2f} ± {spread:.2f} over {len(both)} seeds, {clear}"


def dispersion_gap(runs: Sequence[Run]) -> tuple[float, float]:
    """Dispersion of common clients minus that of rare ones: as reported, and as the weights imply it; last rounds."""
    reported, implied = [], []
    for run in runs:
        rare, wrong = set(run.about["rare"]), set(run.about["mislabeled"])
        q = float(str(run.settings.method[run.method]["q"]))
        for line in run.rounds[-run.settings.evaluation.last_rounds :]:
            own = line["clients"]
            if own["dispersion"] is None or own["weight"] is None:  # a round to warm up
                continue
            of = {
                c: (s, w) for c, s, w in zip(own["id"], own["dispersion"], own["weight"], strict=True) if c not in wrong
            }
            (s_rare, w_rare), (s_common, w_common) = (
                [fmean(values) for values in zip(*(v for c, v in of.items() if (c in rare) is which), strict=True)]
                for which in (True, False)
            )
            if w_rare and w_common:  # else all of them were judged mislabeled, and weights imply nothing
                reported.append(s_common - s_rare)
                implied.append(log(w_rare / w_common) / q)
    return (fmean(reported), fmean(implied)) if reported else (nan, nan)


def print_claims(runs: Sequence[Run]) -> None:
    """Prints what holds in one scenario."""
    of: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        of[run.method].append(run)
    scores = {method: worst(own) for method, own in of.items()}
    print(title(runs))
    best = max((m for m in RIVALS if m in scores), key=lambda m: fmean(scores[m].values()))
    for method in (m for m in OURS if m in scores):
        print(f"  {method} minus the best rival, {best}: {difference(scores, method, best)}")
        for part in (m for m in ABLATIONS if m in scores):
            print(f"  {method} minus {part}: {difference(scores, method, part)}")
    for fair in (m for m in FAIR if m in scores and f"{m}+d" in scores):
        print(f"  {fair}+d minus {fair}: {difference(scores, f'{fair}+d', fair)}")
    if "fedpca-d" in of:
        reported, implied = dispersion_gap(of["fedpca-d"])
        print(
            f"  dispersion of common minus rare clients: {reported:.2f} reported, {implied:.2f} implied by the weights"
        )


def main() -> None:
    for runs in by_scenario(find_runs([Path(name) for name in sys.argv[1:]])):
        print_claims(runs)


if __name__ == "__main__":
    main()
