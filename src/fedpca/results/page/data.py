"""Runs as the plain data that the page draws: columns by round, rounded to the digits shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from statistics import fmean
from typing import Any

from fedpca.results.page.estimates import rule_words
from fedpca.results.read.clients import (
    Line,
    clients_of,
    column,
    has_estimates,
    judged_since,
    known_of,
    threshold,
    truth,
)
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run

LETTERS = {"common": "c", "rare": "r", "mislabeled": "m", "rare and mislabeled": "b", None: "-"}
ANSWERS = {"mislabeled": "m", "not mislabeled": "n", "cannot tell": "?", None: "-"}
DIGITS = {"loss": 3, "dispersion": 3, "suspicion": 3, "suspicion_low": 3, "suspicion_high": 3, "weight": 2}
PERCENT = {"weight"}

Columns = dict[str, list[Any]]


def run_data(run: Run, scenario: int) -> dict[str, object]:
    """One run, complete; `scenario` is the number of those with which it may be compared."""
    clients, kinds = clients_of(run), truth(run)
    return {
        "label": run.label(),
        "seed": run.seed,
        "scenario": scenario,
        "metric": metric_words(run.accuracy),
        "clients": clients,
        "sizes": _or_none(known_of(run, "size")),
        "wrong": _or_none(known_of(run, "wrong_labels")),
        "truth": "".join(LETTERS[kinds[client]] for client in clients) if kinds else None,
        "planned": run.settings.rounds,
        "threshold": threshold(run),
        "estimates": has_estimates(run),
        "rule": rule_words(run) if has_estimates(run) else "",
        "asks": bool(run.facts["judges"]),
        "since": judged_since(run),
        "columns": columns(run, 0),
    }


def key(runs: Sequence[Run]) -> str:
    """Tells whether two pages show the same runs and clients, so that new rounds of one fit the other."""
    return sha256(json.dumps([[str(run.folder), clients_of(run)] for run in runs]).encode()).hexdigest()[:16]


def news(runs: Sequence[Run], have: Sequence[int]) -> list[dict[str, object]]:
    """What a page that has so many rounds of each run does not have yet."""
    return [{"columns": columns(run, start), "since": judged_since(run)} for run, start in zip(runs, have, strict=True)]


def columns(run: Run, start: int) -> Columns:
    """What changes from round to round, from the line `start` on; a list for each quantity, an entry for each round."""
    clients, kinds = clients_of(run), truth(run)
    lines = run.rounds[start:]
    return {
        "round": [line["round"] for line in lines],
        "group": [_letters(line, "group", LETTERS, clients) for line in lines],
        "answer": [_letters(line, "answer", ANSWERS, clients) for line in lines],
        **{name: [_rounded(line, name, clients) for line in lines] for name in DIGITS},
        "worst": [_over_groups(line, run.accuracy, min) for line in lines],
        "average": [_over_groups(line, run.accuracy, fmean) for line in lines],
        "shares": [shares(line, clients, kinds) for line in lines],
    }


def shares(line: Line, clients: Sequence[str], kinds: dict[str, str] | None) -> dict[str, float] | None:
    """What each kind of client weighs in a round, in percent: the true kinds where they are known, else the judged."""
    weights = column(line, "weight", clients)
    named = [kinds[client] for client in clients] if kinds else column(line, "group", clients)
    if all(weight is None for weight in weights):
        return None
    found: dict[str, float] = {}
    for kind, weight in zip(named, weights, strict=True):
        letter = LETTERS[kind]
        found[letter] = found.get(letter, 0.0) + 100 * (weight or 0.0)
    return {letter: round(share, 1) for letter, share in found.items()}


def _letters(line: Line, name: str, letters: Mapping[str | None, str], clients: Sequence[str]) -> str | None:
    values = column(line, name, clients)
    return "".join(letters[value] for value in values) if any(values) else None


def _rounded(line: Line, name: str, clients: Sequence[str]) -> list[float | None] | None:
    values = column(line, name, clients)
    if all(value is None for value in values):
        return None
    factor = 100 if name in PERCENT else 1
    return [None if value is None else _short(factor * value, DIGITS[name]) for value in values]


def _short(value: float, digits: int) -> float:
    """The value rounded, a whole number without its decimal point."""
    near = round(value, digits)
    return int(near) if near == int(near) else near


def _over_groups(line: Line, metric: str, pick: Callable[[list[float]], float]) -> float | None:
    """The least, or the mean, of a metric over the test groups, in percent."""
    tested = line.get("groups")
    return round(100 * pick([scores[metric] for scores in tested.values()]), 2) if tested else None


def _or_none(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None
