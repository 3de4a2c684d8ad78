"""What was measured: one row per method, one table per scenario."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from fedpca.results.read.judgements import Found, found
from fedpca.results.read.runs import Run, by_scenario, title
from fedpca.runs.scores import Headline, Spread, fairness_robustness, headline, spread
from fedpca.settings.catalogue import METHODS
from fedpca.settings.experiment import Experiment
from fedpca.settings.names import entry, parse

if TYPE_CHECKING:
    from fedpca.results.tables.paper import Published

CATEGORIES = {  # the catalogue's word: the tables' heading, in the tables' order
    "baseline": "Baseline",
    "fair": "Fair",
    "robust": "Robust",
    "fair + robust": "Fair + Robust",
    "ours": "FedPCA",
    "ablation": "Ablations",
    "drop": "With (D)",
    "outside": "Outside",
}


@dataclass(frozen=True)
class Row:
    """One method in one scenario, over its seeds."""

    method: str  # with the settings that tell it from its defaults or from other rows
    name: str
    category: str
    acc: Headline
    bacc: Headline
    auc: Headline
    weight: float | None  # w_r (1 - w_m); None for rules without weights, and where nobody is known to be rare
    found: Found | None  # None for methods that name no groups
    seeds: int
    unfinished: int  # runs that are still under way


@dataclass(frozen=True)
class Results:
    """All methods in one scenario."""

    title: str
    groups: tuple[str, ...]
    rows: tuple[Row, ...]
    scenario: str  # what all runs have in common, as JSON
    settings: Experiment  # of one of the runs
    dataset: str
    clients: int
    rare: int | None  # None where the truth is not known
    mislabeled: tuple[str, ...] | None
    published: Published | None = None  # what the paper has, if asked for


@dataclass(frozen=True)
class Score:
    """One column of the tables."""

    head: str
    of: Callable[[Row], Spread | float | None]
    digits: int = 2
    best: Literal["most", "least"] | None = None
    is_spread: bool = False  # a mean with its deviation, in percent


def _over_groups(metric: str, head: str) -> dict[str, Score]:
    """Worst, average and STD of one metric."""

    def of(figure: str) -> Callable[[Row], Spread]:
        return lambda row: getattr(getattr(row, metric), figure)

    return {
        f"worst_{metric}": Score(f"worst {head}", of("worst"), best="most", is_spread=True),
        f"average_{metric}": Score(f"average {head}", of("average"), best="most", is_spread=True),
        f"std_{metric}": Score(f"STD {head}", of("std"), best="least", is_spread=True),
    }


def _of_found(name: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.found, name) if row.found else None


SCORES = {
    **_over_groups("acc", "ACC"),
    **_over_groups("bacc", "balanced ACC"),
    **_over_groups("auc", "AUC"),
    "w_r_times_not_w_m": Score("w_r(1-w_m)", lambda row: row.weight, digits=4, best="most"),
    "precision": Score("precision", _of_found("precision")),
    "recall": Score("recall", _of_found("recall")),
    "f1": Score("F1", _of_found("f1")),
    "accused_common": Score("accused common", _of_found("accused_common"), digits=1),
    "accused_rare": Score("accused rare", _of_found("accused_rare"), digits=1),
}


def tabulate(runs: Sequence[Run]) -> list[Results]:
    """One table per scenario, rows by category and in the catalogue's order; scores in percent."""
    return [_results(members) for members in by_scenario(runs)]


def place(row: Row) -> tuple[int, int]:
    """Where a row stands: by category, then as in the catalogue."""
    return list(CATEGORIES.values()).index(row.category), [*METHODS, row.name].index(row.name)


def _results(runs: Sequence[Run]) -> Results:
    by_label: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=Run.rank):
        by_label[run.label()].append(run)
    rows = sorted((_row(label, members) for label, members in by_label.items()), key=place)
    first = runs[0]
    rare, mislabeled = first.about.get("rare"), first.about.get("mislabeled")
    return Results(
        title(runs),
        tuple(first.last("acc")),
        tuple(rows),
        first.scenario(),
        first.settings,
        first.about["dataset"],
        clients=len(first.about["clients"]["id"]),
        rare=None if rare is None else len(rare),
        mislabeled=None if mislabeled is None else tuple(mislabeled),
    )


def _row(label: str, runs: Sequence[Run]) -> Row:
    weighed = [[line["weights"] for line in run.rounds] for run in runs if run.about.get("rare")]
    products = [fairness_robustness(shares) for shares in weighed if all(shares)]
    return Row(
        label,
        runs[0].method,
        _category(runs[0].method),
        _pooled(runs, "acc"),
        _pooled(runs, "bacc"),
        _pooled(runs, "auc"),
        weight=spread(products).mean if products else None,
        found=found(runs),
        seeds=len(runs),
        unfinished=sum(not run.is_done for run in runs),
    )


def _category(method: str) -> str:
    if parse(method).drops:
        return CATEGORIES["drop"]
    return CATEGORIES["ablation" if method.startswith("fedpca-wo-") else entry(method).category]


def _pooled(runs: Sequence[Run], metric: str) -> Headline:
    """The headline over the last rounds of every seed together."""
    pooled: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for group, values in run.last(metric).items():
            pooled[group] += [100 * value for value in values]
    return headline(pooled)


def as_csv(tables: Sequence[Results]) -> str:
    """All tables as one CSV, full precision; the paper's figures, if they were asked for, in columns of their own."""
    pairs = [pairs for results in tables if results.published for pairs in results.published.pairs.values()]
    published = [name for name in SCORES if any(name in own for own in pairs)]
    heads = [head for name, score in SCORES.items() for head in (name, f"{name}_spread")[: 1 + score.is_spread]]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["scenario", "dataset", "rho", "eta", "category", "method", *heads, "seeds", "unfinished"]
        + [f"paper_{name}" for name in published]
    )
    for results in tables:
        noise = results.settings.noise
        scenario = (results.title, results.dataset, noise.clients, noise.labels)
        for row in results.rows:
            cells = [cell for score in SCORES.values() for cell in _full(score.of(row))]
            own = results.published.pairs.get(row.method, {}) if results.published else {}
            paper = [own[name].paper if name in own else None for name in published]
            writer.writerow([*scenario, row.category, row.method, *cells, row.seeds, row.unfinished, *paper])
    return out.getvalue()


def as_json(tables: Sequence[Results]) -> list[dict[str, object]]:
    """All tables as plain data for scripts."""
    return [
        {
            "title": results.title,
            "dataset": results.dataset,
            "rho": results.settings.noise.clients,
            "eta": results.settings.noise.labels,
            "groups": results.groups,
            "mislabeled": results.mislabeled,
            "rows": [asdict(row) for row in results.rows],
            **({"published": asdict(results.published)} if results.published else {}),
        }
        for results in tables
    ]


def _full(value: Spread | float | None) -> tuple[float | None, ...]:
    return (value.mean, value.std) if isinstance(value, Spread) else (value,)
