"""Rare clients by every corruption, and federations in which nothing is wrong: `python -m studies.rare OUT`.

Does `fedpca`, with no setting, do as well as the better of plain dropping and `fedpca-hs-auto`? Decisions were made on
draw 11; what is published is of draw 100. `--clean` plays federations without rare or without mislabeled clients
against more methods. Then `--table` prints worst-group accuracies, the mean over the training seeds (`--seeds`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from fedpca.data.corrupt import CORRUPTIONS
from fedpca.results.read.runs import find_runs
from fedpca.runs.cell import cells, is_done
from fedpca.runs.check import check_experiment
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.base import Table
from studies.jobs import work_through

ROUNDS, LAST, DRAW, SEEDS = 30, 5, 100, (0, 1, 2)
OWN, OTHERS = "fedpca", ("fedavg+d", "fedpca-hs-auto")
CLEAN_OTHERS = ("fedavg", "rfa", "median", "fednoro", "qfedavg", *OTHERS)
NOISES: Mapping[str, Table] = {"nobody mislabeled": {}, "some mislabeled": {"clients": 0.25, "labels": 0.8}}
GREY = {"saturate": "brightness"}  # grey images have no saturation


@dataclass(frozen=True)
class Federation:
    """One federation and the methods that are played on it."""

    name: str
    settings: Table
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = SEEDS


def federations(draw: int) -> Iterator[Federation]:
    """Digits and Fashion-MNIST, each corruption at severities 3 and 5, with and without mislabeled clients."""
    for corruption in sorted(CORRUPTIONS.own):
        for severity in (3, 5):
            for noise, table in NOISES.items():
                kind: Table = {"corruption": GREY.get(corruption, corruption), "severity": severity}
                seed = draw + (corruption in GREY)  # another draw of the corruption that stands in for it
                for data, share in (("digits", 0.2), ("fashion-mnist", 0.1)):
                    name = f"{data}, {corruption} {severity}, {noise}"
                    settings = _settings(data, seed, {"share": share, **kind}, table)
                    yield Federation(name, settings, (OWN, *OTHERS))


def clean_federations(draw: int) -> Iterator[Federation]:
    """Nobody rare or mislabeled, some rare, some mislabeled, or both."""
    scenes: dict[str, Table] = {"rare": {"share": 0.2, "sigma": 0.5}, "no rare": {}}
    for data in ("digits", "fashion-mnist"):
        for rare, kind in scenes.items():
            for noise, table in NOISES.items():
                settings = _settings(data, draw, kind, table)
                yield Federation(f"{data}, {rare}, {noise}", settings, (OWN, *CLEAN_OTHERS))


def _settings(data: str, draw: int, rare: Table, noise: Table) -> Table:
    sizes: Table = {"clients": 50, "train_images": 5000, "test_images": 3000} if data != "digits" else {"clients": 20}
    return {
        "name": "rare",
        "rounds": ROUNDS,
        "data": {"dataset": data, "seed": draw, **sizes},
        "rare": rare,
        "noise": noise,
        "model": {"name": "mlp"},
        "training": {"batch": 16, "lr": 0.05 if data == "digits" else 0.02},
        "evaluation": {"every": ROUNDS, "last_rounds": LAST},
    }


def play(federation: Federation, out: Path) -> str:
    """Runs every method and seed that is not finished."""
    more: Table = {"methods": list(federation.methods), "seeds": list(federation.seeds)}
    experiment = check_experiment({**federation.settings, **more}, "studies.rare")
    prepared = None
    for cell in cells(experiment, out / federation.name.replace(" ", "_")):
        if not is_done(cell):
            prepared = prepared or prepare(experiment)
            run_cell(cell, *prepared, 1, lambda cell, line: None)
    return federation.name


def worst(folder: Path, method: str, seeds: tuple[int, ...]) -> float | None:
    """The worst test group's accuracy in percent, over the last rounds of all seeds; None if a run is missing."""
    found = find_runs([folder]) if folder.exists() else []
    runs = [run for run in found if run.method == method and run.seed in seeds and run.is_done]
    if len(runs) < len(seeds):
        return None
    return 100 * min(fmean(value for run in runs for value in run.last()[group]) for group in runs[0].last())


def table(out: Path, federations: list[Federation]) -> None:
    """One line per federation, then how often `fedpca` is more than 0.5 points below the best of the others."""
    methods = federations[0].methods
    print(f"| federation | {' | '.join(methods)} | fedpca - best |")
    print("|---|" + "---:|" * (len(methods) + 1))
    columns: dict[str, list[float]] = {method: [] for method in methods}
    below = []
    for federation in federations:
        found = {method: worst(out / federation.name.replace(" ", "_"), method, federation.seeds) for method in methods}
        known = {method: value for method, value in found.items() if value is not None}
        if len(known) < len(methods):
            continue
        difference = known[OWN] - max(value for method, value in known.items() if method != OWN)
        below += [federation.name] * (difference < -0.5)
        for method, value in known.items():
            columns[method].append(value)
        print(f"| {federation.name} | {' | '.join(f'{v:.2f}' for v in known.values())} | {difference:+.2f} |")
    print(f"| mean of {len(columns[OWN])} | {' | '.join(f'{fmean(v):.2f}' for v in columns.values())} | |")
    print(f"\nMore than 0.5 points below the best of the others: {len(below)}.", *below, sep="\n* ")


def main() -> None:
    """Plays what is missing, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draw", type=int, default=DRAW)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many training seeds, from 0 on")
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    seeds = SEEDS[: options.seeds]
    every = [replace(own, seeds=seeds) for own in (clean_federations if options.clean else federations)(options.draw)]
    if options.table:
        table(options.out, every)
        return
    work_through(play, every, options.out, options.jobs)


if __name__ == "__main__":
    main()
