"""Does what the paper claims hold in these runs? `python -m studies.claims RUNS…`, one table per scenario.

Differences of the worst group's accuracy are taken seed by seed: methods share federation and first weights there.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from math import log, nan
from pathlib import Path
from statistics import fmean

from fedpca.results.read.differences import by_seed, compare
from fedpca.results.read.runs import Run, by_scenario, find_runs, title

SINGLE = ("fedavg", "qfedavg", "fedce", "fedga", "fedism", "median", "rfa", "fedcorr", "fednoro", "hnobs")
RIVALS = (*SINGLE, "qfedavg+median", "fedce+rfa", "fedga+fedcorr", "fedism+fednoro")
OURS = ("fedpca-d", "fedpca-hs")
ABLATIONS = ("fedpca-wo-fairness", "fedpca-wo-robustness")
FAIR = ("fedavg", "qfedavg", "fedce", "fedga", "fedism")


def difference(one: Sequence[Run], other: Sequence[Run]) -> str:
    """One's worst accuracy minus the other's: mean, deviation and interval over the seeds, and what that says."""
    gain = compare(one, other, "worst")
    if gain is None:
        return "no seed in both"
    if gain.std is None:
        return f"{gain.mean:+.2f} over 1 seed, without a deviation"
    clear = "more than the deviation" if abs(gain.mean) > gain.std else "within the deviation"
    interval = f"95 % interval {gain.low:+.2f} to {gain.high:+.2f}"
    return f"{gain.mean:+.2f} ± {gain.std:.2f} over {gain.seeds} seeds, {clear}; {interval}"


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
    print(title(runs))
    best = max((m for m in RIVALS if m in of), key=lambda m: fmean(by_seed(of[m], "worst").values()))
    for method in (m for m in OURS if m in of):
        print(f"  {method} minus the best rival, {best}: {difference(of[method], of[best])}")
        for part in (m for m in ABLATIONS if m in of):
            print(f"  {method} minus {part}: {difference(of[method], of[part])}")
    for fair in (m for m in FAIR if m in of and f"{m}+d" in of):
        print(f"  {fair}+d minus {fair}: {difference(of[f'{fair}+d'], of[fair])}")
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
