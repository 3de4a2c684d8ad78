"""Tables for scripts, in full precision: CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from fedpca.results.tables.rows import OTHERS, Results, Row, names_of, score_of
from fedpca.runs.scores import Spread

PLACE = ("scenario", "dataset", "rho", "eta", "category", "method")


def as_csv(tables: Sequence[Results]) -> str:
    """All tables as one CSV; the paper's numbers, if they were asked for, in columns of their own."""
    metrics = list(dict.fromkeys(metric for results in tables for row in results.rows for metric in row.scores))
    names = [*names_of(metrics), *OTHERS]
    pairs = [pairs for results in tables if results.published for pairs in results.published.pairs.values()]
    published = [name for name in names if any(name in own for own in pairs)]
    settings = list(dict.fromkeys(key for results in tables for key in results.distinction))
    heads = [head for name in names for head in (name, f"{name}_spread")[: 1 + score_of(name).is_spread]]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*PLACE, *settings, *heads, "seeds", "unfinished", *(f"paper_{name}" for name in published)])
    for results in tables:
        for row in results.rows:
            own = results.published.pairs.get(row.method, {}) if results.published else {}
            paper = [own[name].paper if name in own else None for name in published]
            cells = [cell for name in names for cell in _full(row, name)]
            place = [*_place(results, row), *(results.distinction.get(key) for key in settings)]
            writer.writerow([*place, *cells, row.seeds, row.unfinished, *paper])
    return out.getvalue()


def _place(results: Results, row: Row) -> tuple[object, ...]:
    noise = results.settings.noise
    return results.title, results.dataset, noise.clients, noise.labels, row.category, row.method


def _full(row: Row, name: str) -> Iterator[float | None]:
    score = score_of(name)
    value = score.of(row)
    yield value.mean if isinstance(value, Spread) else value
    if score.is_spread:
        yield value.std if isinstance(value, Spread) else None


def as_json(tables: Sequence[Results]) -> list[dict[str, object]]:
    """All tables as plain data."""
    return [
        {
            "title": results.title,
            "dataset": results.dataset,
            "rho": results.settings.noise.clients,
            "eta": results.settings.noise.labels,
            "distinction": dict(results.distinction),
            "groups": results.groups,
            "mislabeled": results.mislabeled,
            "rows": [_plain(row) for row in results.rows],
            **({"published": asdict(results.published)} if results.published else {}),
        }
        for results in tables
    ]


def _plain(row: Row) -> dict[str, object]:
    return {
        "method": row.method,
        "name": row.name,
        "category": row.category,
        **{metric: asdict(scores) for metric, scores in row.scores.items()},
        "weight": row.weight,
        "found": asdict(row.judged) if row.judged else None,
        "seeds": row.seeds,
        "unfinished": row.unfinished,
    }
