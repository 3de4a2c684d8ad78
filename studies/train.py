"""Trains with the paper's rule and with `auto` side by side: `python -m studies.train OUT [--jobs N]`, then `--table`.

The recordings show what a rule would say as long as it is right; here its own decisions lead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean

from fedpca.results.read.runs import Run, by_scenario, find_runs
from fedpca.runs.cell import cells, is_done
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.experiment import Experiment
from studies.jobs import Spec, work_through
from studies.record import settings

METHODS, SEEDS, LAST = ("fedpca-d", "fedpca-d-auto"), (0, 1, 2), 10


def grid() -> Iterator[Spec]:
    """Federations of each size; K = 20 the most."""
    for split, rare, (rho, eta) in product(
        ("iid", "dirichlet"), (0.0, 0.1, 0.2), ((0.0, 0.0), (0.1, 0.8), (0.2, 1.0), (0.4, 0.5), (0.6, 0.8))
    ):
        yield {"clients": 20, "split": split, "rare": rare, "rho": rho, "eta": eta, "seed": 0}
    for rare, (rho, eta) in product((0.0, 0.2), ((0.0, 0.0), (0.2, 1.0), (0.6, 0.8))):
        yield {"clients": 10, "split": "dirichlet", "rare": rare, "rho": rho, "eta": eta, "seed": 0}
    for rare, (rho, eta) in product((0.0, 0.1, 0.2), ((0.0, 0.0), (0.2, 0.8), (0.4, 0.5))):
        yield {"clients": 50, "split": "iid", "rare": rare, "rho": rho, "eta": eta, "seed": 0}
    for rho, eta in ((0.0, 0.0), (0.2, 1.0)):
        yield {"clients": 50, "split": "iid", "rare": 0.2, "rho": rho, "eta": eta, "seed": 0, "cifar": True}


def experiment(spec: Spec) -> Experiment:
    """The federation of a spec, to be trained by both rules."""
    chosen = settings(spec)
    name = ", ".join(f"{key} {value}" for key, value in spec.items() if key != "seed")
    data = chosen.data.model_copy(update={"test_images": None if chosen.data.dataset == "digits" else 2000})
    return chosen.model_copy(update={"name": name, "methods": METHODS, "seeds": SEEDS, "data": data})


def train(spec: Spec, out: Path) -> str:
    """Runs every method and seed of one federation that is not finished."""
    chosen = experiment(spec)
    todo = [cell for cell in cells(chosen, out / chosen.name.replace(", ", "_").replace(" ", "")) if not is_done(cell)]
    if todo:
        dataset, federation = prepare(chosen)
        for cell in todo:
            run_cell(cell, dataset, federation, 1, lambda cell, line: None)
    return chosen.name


def table(out: Path) -> None:
    """One line per federation: how each rule judged, and how far the worst group's accuracies differ."""
    print(
        f"{'federation':58} {'paper: F1, wrongly':>20} {'auto: F1, wrongly':>20} {'worst ACC':>14} {'auto - paper':>12}"
    )
    for runs in by_scenario(find_runs([out])):
        rules = [[run for run in runs if run.method == method] for method in METHODS]
        if all(len(own) == len(SEEDS) and all(run.is_done for run in own) for own in rules):
            (f1, wrongly, worst), (auto_f1, auto_wrongly, auto_worst) = (_judgement(own) for own in rules)
            print(
                f"{runs[0].settings.name:58} {f1:14.2f} {wrongly:5.1f} {auto_f1:14.2f} {auto_wrongly:5.1f} "
                f"{worst:7.2f} {auto_worst:6.2f} {auto_worst - worst:12.2f}"
            )


def _judgement(runs: list[Run]) -> tuple[float, float, float]:
    """Mean F1 and wrongly accused clients per round over the last ten, and worst accuracy in percent."""
    found = [own for run in runs for line in run.rounds[-LAST:] if (own := line["identification"])]
    wrongly = fmean(f["accused_common"] + f["accused_rare"] for f in found)
    groups = runs[0].last()
    worst = min(fmean(v for run in runs for v in run.last()[group]) for group in groups)
    return fmean(f["f1"] for f in found), wrongly, 100 * worst


def main() -> None:
    """Trains what is missing, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        table(options.out)
        return
    work_through(train, list(grid()), options.out, options.jobs)


if __name__ == "__main__":
    main()
