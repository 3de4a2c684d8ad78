"""What an epsilon costs: `python -m studies.privacy [--seeds 3] [--rounds 40] [--only central]`.

It prints the tables of docs/privacy.md. Digits, 20 clients, a small network: 4 clients have noisy images, 4 have 80 %
wrong labels. A cell is the accuracy of the worst test group in percent, its mean over the last five rounds of every
seed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import torch

from fedpca.runs.cell import cells
from fedpca.runs.check import check_experiment
from fedpca.runs.folder import SUMMARY
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.base import Table

BASE: Mapping[str, object] = {
    "name": "privacy",
    "data": {"dataset": "digits", "clients": 20},
    "rare": {"share": 0.2, "sigma": 0.5},
    "noise": {"clients": 0.2, "labels": 0.8},
    "model": {"name": "mlp"},
    "training": {"batch": 16, "lr": 0.05},
}
EPSILONS = (None, 1000.0, 100.0, 30.0, 8.0, 1.0)
REPORTING = ("fedavg", "fedpca-d", "fedpca-hs-auto", "fedpca")
AVERAGING = (("fedavg", 1.0), ("fedavg", 0.1), ("fedavg", 0.03), ("fedpca-d", 0.1))  # with the length of an update
KINDS = ("reports", "central")
Make = Callable[[float | None], Table]
ENOUGH = 1e6  # an epsilon of reports that leaves them as they are, where only the noise on weights is looked at


def reports(epsilon: float | None) -> Table:
    """Noise on reported numbers alone."""
    return {"reports": {"epsilon": epsilon}} if epsilon else {}


def central(epsilon: float | None, clip: float) -> Table:
    """Noise on weights; reports have none to speak of."""
    quiet: Table = {"reports": {"epsilon": ENOUGH}}
    return {**quiet, "central": {"epsilon": epsilon, "clip": clip}} if epsilon else {}


def worst_groups(method: str, privacy: Table, rounds: int, seeds: Sequence[int]) -> list[float]:
    """The worst group's accuracy of a method under each seed."""
    table = {**BASE, "methods": [method], "seeds": list(seeds), "rounds": rounds, "privacy": privacy}
    experiment = check_experiment(table, "studies.privacy")
    dataset, federation = prepare(experiment)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells(experiment, Path(folder)):
            run_cell(cell, dataset, federation, 1, lambda cell, line: None)
            summary = json.loads((cell.folder / SUMMARY).read_text())
            found.append(100 * summary["acc"]["worst"])
    return found


def columns(kind: str) -> dict[str, tuple[str, Make]]:
    """What each column of a table shows: a method, and its noise by the epsilon."""
    if kind == "reports":
        return {method: (method, reports) for method in REPORTING}
    return {f"{method}, clip {clip:g}": (method, partial(central, clip=clip)) for method, clip in AVERAGING}


def table_of(kind: str, rounds: int, seeds: Sequence[int]) -> Iterator[str]:
    """A row for each epsilon."""
    own = columns(kind)
    yield f"| epsilon of {'all reports' if kind == 'reports' else 'the weights'} | " + " | ".join(own) + " |"
    yield "|---|" + "---:|" * len(own)
    for epsilon in EPSILONS:
        found = [worst_groups(method, make(epsilon), rounds, seeds) for method, make in own.values()]
        values = [f"{fmean(own):.1f}" + (f" ± {stdev(own):.1f}" if len(own) > 1 else "") for own in found]
        yield f"| {f'{epsilon:g}' if epsilon else 'no noise'} | " + " | ".join(values) + " |"


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", choices=KINDS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for kind in [asked.only] if asked.only else KINDS:
        for line in table_of(kind, asked.rounds, range(asked.seeds)):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
