"""`fedpca` without any setting beside the best row of every published table: `python -m studies.self_tuning RUNS`.

RUNS has the runs of `fedpca run lite/NAME --method fedpca --out RUNS/lite-NAME`, for every table in `results/`, of
`fedpca run rivals --method fedpca --out RUNS/rivals`, and of `fedpca run lite/cifar10n --out RUNS/lite-cifar10n` with
all methods. The other rows are those of `results/*.csv`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedpca.results.read.runs import Run, find_runs

OWN = "fedpca"
TABLES = ("fashion", "cifar10", "ct", "skin", "non-iid-label", "non-iid-input", "uniform-noise")
RESULTS = Path(__file__).parent.parent / "results"


@dataclass(frozen=True)
class Row:
    """One method in one scenario, in percent."""

    method: str
    worst: float
    average: float


def published(name: str) -> dict[str, list[Row]]:
    """The rows of a published table by the setting's name."""
    found: dict[str, list[Row]] = {}
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            setting = line["scenario"].partition(":")[0].partition(", ")[2]
            metric = "bacc" if name in ("lite-ct", "lite-skin") else "acc"
            row = Row(line["method"], float(line[f"worst_{metric}"]), float(line[f"average_{metric}"]))
            found.setdefault(setting, []).append(row)
    return found


def row_of(runs: Sequence[Run]) -> Row:
    """The figures of one method's runs: the worst group's mean, and the mean of the groups."""
    groups = {group: 100 * fmean(value for run in runs for value in run.last()[group]) for group in runs[0].last()}
    return Row(runs[0].method, min(groups.values()), fmean(groups.values()))


def rows_of(runs: Sequence[Run]) -> dict[str, list[Row]]:
    """The rows of finished runs by the setting's name."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.is_done:
            found.setdefault((str(run.about.get("setting", "")), run.method), []).append(run)
    rows: dict[str, list[Row]] = {}
    for (setting, _), own in found.items():
        rows.setdefault(setting, []).append(row_of(own))
    return rows


def comparisons(folder: Path) -> Iterator[tuple[str, Row, list[Row]]]:
    """Each scenario: its name, the row of `fedpca`, and the other rows."""
    for name in (*(f"lite-{table}" for table in TABLES), "rivals", "lite-cifar10n"):
        if not (folder / name).exists():
            continue
        played = rows_of(find_runs([folder / name]))
        known = published(name) if (RESULTS / f"{name}.csv").exists() else {}
        for setting, rows in played.items():
            own = [row for row in rows if row.method == OWN]
            others = [row for row in known.get(setting, rows) if row.method != OWN]
            if own and others:
                yield f"{name.removeprefix('lite-')} {setting}".strip(), own[0], others


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    folder = parser.parse_args().runs
    print("| table | worst: fedpca | best of the others | difference | average: fedpca | best | difference |")
    print("|---|---:|---|---:|---:|---|---:|")
    for name, own, others in comparisons(folder):
        worst, average = max(others, key=lambda row: row.worst), max(others, key=lambda row: row.average)
        print(
            f"| {name} | {own.worst:.2f} | {worst.worst:.2f} (`{worst.method}`) | {own.worst - worst.worst:+.2f} "
            f"| {own.average:.2f} | {average.average:.2f} (`{average.method}`) | {own.average - average.average:+.2f} |"
        )


if __name__ == "__main__":
    main()
