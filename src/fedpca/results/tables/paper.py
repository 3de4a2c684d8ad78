"""The paper's published numbers beside ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose, isnan

from fedpca.errors import SettingsError, nearest
from fedpca.results.tables.facts import (
    Facts,
    PaperCell,
    PaperDataset,
    PaperTable,
    Scores,
    Study,
    read_facts,
    study_of,
)
from fedpca.results.tables.rows import Results, Row, score_of
from fedpca.runs.scores import Spread

NOT_PRINTED = "the paper prints no number"
NOT_KNOWN = "the paper's number is not known here"


@dataclass(frozen=True)
class Pair:
    """One score of one method, in percent but for weights."""

    ours: float
    paper: float
    spread: float | None = None  # the paper's deviation


@dataclass(frozen=True)
class Order:
    """How far the order of methods agrees in one score; tau-b is None for fewer than three, and where all are equal."""

    score: str
    methods: int
    tau: float | None


@dataclass(frozen=True)
class PaperNumbers:
    """What the paper has for one of our tables."""

    setting: str | None  # of the paper; None: there is none to compare with, and the remarks say why
    pairs: Mapping[str, Mapping[str, Pair]] = field(default_factory=dict)  # row: score: both numbers
    orders: tuple[Order, ...] = ()
    remarks: tuple[str, ...] = ()
    absent: str = NOT_PRINTED  # why a number is missing


def with_paper(tables: Sequence[Results], dataset: str | None = None) -> list[Results]:
    """The tables with the paper's numbers: of their own dataset, or of the one that is named."""
    facts = read_facts()
    key = None if dataset is None else _asked(dataset, facts)
    return [replace(results, published=_published(results, key, facts)) for results in tables]


def _asked(name: str, facts: Facts) -> str:
    """The paper's dataset of that name."""
    if (key := _dataset(name, facts)) is None:
        known = [name for dataset in facts.datasets.values() for name in dataset.names]
        raise SettingsError(f"--paper-of {name}: the paper has no such dataset{nearest(name, known)}")
    return key


def _dataset(name: str, facts: Facts) -> str | None:
    """Which of the paper's datasets a name means, in any spelling such as ISIC_2019; None if none."""
    plain = _plain(name)
    return next((key for key, dataset in facts.datasets.items() if plain in map(_plain, (key, *dataset.names))), None)


def dataset_of(name: str, facts: Facts) -> str | None:
    """Which of the paper's datasets a name means, or which one a smaller dataset stands in for; None if none."""
    stood_for = (key for key, dataset in facts.datasets.items() if name in dataset.stand_ins)
    return _dataset(name, facts) or next(stood_for, None)


def printed_for(results: Results, facts: Facts) -> dict[str, dict[str, float]]:
    """What the paper prints in the same setting, by method and score; its ACC is `acc` whatever it stands for."""
    key = dataset_of(results.dataset, facts)
    tables = _tables(results, key, study_of(results.settings), facts) if key else []
    return _by_method([cell.methods for _, cell in tables], "acc")


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _published(results: Results, asked: str | None, facts: Facts) -> PaperNumbers:
    """What the paper has for one table; if nothing can be compared, why not."""
    key = asked or dataset_of(results.dataset, facts)
    if key is None:
        return _nothing(
            f"The paper has no table for {results.dataset}. Name one of its datasets ({', '.join(facts.datasets)}) to "
            "compare with its setting of the same ρ and η, such as --paper-of cifar10."
        )
    dataset, study = facts.datasets[key], study_of(results.settings)
    differences = _differences(results, dataset)
    listed = ", ".join(differences.values())
    tables = _tables(results, key, study, facts)
    cells = [cell for _, cell in tables]
    if not cells:
        return _nothing(f"The paper has no such setting of {dataset.title}. {_settings_of(key, facts)}")
    setting = f"{dataset.title}, {'' if study == 'iid' else f'{study}, '}ρ = {cells[0].rho}, η = {cells[0].eta}"
    printed = _by_method([cell.methods for cell in cells], dataset.accuracy)
    pairs = _pairs(results.rows, printed, _by_method([cell.spreads for cell in cells], dataset.accuracy))
    absent = NOT_PRINTED if all(table.complete for table, _ in tables) else NOT_KNOWN
    remarks = [f"The paper's setting is another: {listed}."] if listed else []
    remarks += _gaps(results.rows, printed, absent, dataset, facts)
    return PaperNumbers(setting, pairs, _orders(results.rows, pairs, dataset.scores()), tuple(remarks), absent)


def _nothing(reason: str) -> PaperNumbers:
    return PaperNumbers(None, remarks=(reason,))


def _differences(results: Results, dataset: PaperDataset) -> dict[str, str]:
    """What the paper has, and what these runs have instead."""
    data, rare, rounds = results.settings.data, results.settings.rare.share, results.settings.rounds
    differs = {}
    if _plain(results.dataset) not in map(_plain, dataset.names):
        differs["dataset"] = f"{dataset.title} (here {results.dataset})"
    elif data.train_images is not None or data.test_images is not None:
        differs["images"] = f"all images of {dataset.title} (here a part of them)"
    if results.settings.evaluation.on == "validation":
        differs["tests"] = "the test images (here some of the training images, set aside)"
    if results.clients != dataset.clients:
        differs["clients"] = f"{dataset.clients} clients (here {results.clients})"
    if not isclose(rare, dataset.rare):
        differs["rare"] = f"{dataset.rare:.0%} of them rare (here {rare:.0%})"
    if rounds != dataset.rounds:
        differs["rounds"] = f"{dataset.rounds} rounds (here {rounds})"
    return differs


def _tables(results: Results, dataset: str, study: Study | None, facts: Facts) -> list[tuple[PaperTable, PaperCell]]:
    """What all of the paper's tables have for one setting, each with its table."""
    noise = results.settings.noise
    return [
        (table, cell)
        for table in facts.tables.values()
        for cell in table.cells
        if (table.study, cell.dataset) == (study, dataset)
        and isclose(cell.rho, noise.clients)
        and all(isclose(cell.eta, rate) for rate in noise.rates)
    ]


def _settings_of(dataset: str, facts: Facts) -> str:
    """Which settings of a dataset the paper has, study by study."""
    pairs: dict[str, dict[str, None]] = {}
    for table in facts.tables.values():
        own = {f"({cell.rho}, {cell.eta})": None for cell in table.cells if cell.dataset == dataset}
        if own:
            pairs.setdefault(table.study, {}).update(own)
    return "It has (ρ, η): " + "; ".join(f"{study} {', '.join(own)}" for study, own in pairs.items()) + "."


def _by_method(cells: Sequence[Mapping[str, Scores]], accuracy: str) -> dict[str, dict[str, float]]:
    """The paper's numbers of several tables by method and score; its ACC is filed under the metric that it is."""
    printed: dict[str, dict[str, float]] = {}
    for methods in cells:
        for method, scores in methods.items():
            printed.setdefault(method, {}).update(scores.printed(accuracy))
    return printed


def _pairs(
    rows: Sequence[Row], printed: Mapping[str, Mapping[str, float]], spreads: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Pair]]:
    """Both numbers of every row and score that has both."""
    pairs: dict[str, dict[str, Pair]] = {}
    for row in rows:
        for score, paper in printed.get(row.name, {}).items():
            if (ours := _mean(row, score)) is not None:
                pair = Pair(ours, paper, spreads.get(row.name, {}).get(score))
                pairs.setdefault(row.method, {})[score] = pair
    return pairs


def _mean(row: Row, score: str) -> float | None:
    value = score_of(score).of(row)
    return value.mean if isinstance(value, Spread) else value


def _orders(rows: Sequence[Row], pairs: Mapping[str, Mapping[str, Pair]], scores: Sequence[str]) -> tuple[Order, ...]:
    """Kendall's tau-b of each score over the methods in both; of a method with several rows the first counts."""
    first = {row.name: pairs[row.method] for row in reversed(rows) if row.method in pairs}
    both = {score: [own[score] for own in first.values() if score in own] for score in scores}
    return tuple(Order(score, len(own), _tau_b(own)) for score, own in both.items() if own)


def _tau_b(pairs: Sequence[Pair]) -> float | None:
    from scipy.stats import kendalltau

    if len(pairs) < 3:
        return None
    tau = float(kendalltau([pair.ours for pair in pairs], [pair.paper for pair in pairs]).statistic)
    return None if isnan(tau) else tau


def _gaps(
    rows: Sequence[Row], printed: Mapping[str, Mapping[str, float]], absent: str, dataset: PaperDataset, facts: Facts
) -> Iterator[str]:
    """What cannot be compared, and why."""
    names = list(dict.fromkeys(row.name for row in rows))
    scores = dataset.scores()
    nowhere = [score_of(score).head for score in scores if not any(score in printed.get(name, ()) for name in names)]
    if nowhere:
        yield f"For all of these methods {absent}: {', '.join(nowhere)}."
    without = [name for name in names if name in facts.methods and name not in printed]
    if without and len(nowhere) < len(scores):
        yield f"For these methods {absent}: {', '.join(without)}."
    if others := [name for name in names if name not in facts.methods]:
        yield f"Not among the paper's methods: {', '.join(others)}."
    several = [name for name, n in Counter(row.name for row in rows if row.name in printed).items() if n > 1]
    if several:
        yield f"In the order of methods the first row counts of {', '.join(several)}."
    if dataset.remark():
        yield dataset.remark()
