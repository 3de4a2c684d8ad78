"""Tables for scripts, in full precision: CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from fedpca.results.read.differences import Difference
from fedpca.results.tables.attacks import under_attack
from fedpca.results.tables.paper import Pair
from fedpca.results.tables.rows import ATTACKED, OTHERS, Results, Row, names_of, score_of
from fedpca.runs.scores import Headline, Spread

WITHOUT = ("suspect_groups", "worst_without_suspect", "average_without_suspect")  # where any test group is suspect
GAIN = ("gain", "gain_low", "gain_high", "gain_seeds")  # after a score's name
GROUP = (
    *("group", "metric", "score", "low", "high", "images"),
    *("is_worst", "is_suspect", "seeds", "unfinished", "not_counted"),
)
PLACE = ("scenario", "dataset", "rho", "eta", "category", "method")


def as_csv(tables: Sequence[Results]) -> str:
    """All tables as one CSV; the paper's numbers and differences between methods, if asked for, in further columns."""
    metrics = list(dict.fromkeys(metric for results in tables for row in results.rows for metric in row.scores))
    is_known = any(results.mislabeled is not None for results in tables)
    attacked = ATTACKED if any(map(under_attack, tables)) else ()
    names = [*names_of(metrics), *(OTHERS if is_known else ()), *attacked]
    settings = _settings(tables)
    suspects = WITHOUT if any(row.groups.suspects for results in tables for row in results.rows) else ()
    pairs = [pairs for results in tables if results.published for pairs in results.published.pairs.values()]
    published = [name for name in names if any(name in own for own in pairs)]
    gains = [name for name in names if any(name in own for results in tables for own in _gains(results).values())]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*PLACE, *settings, *_heads(names, [*suspects], published, gains)])
    for results in tables:
        for row in results.rows:
            own = results.published.pairs.get(row.method, {}) if results.published else {}
            paper = [number for name in published for number in _paper(own.get(name))]
            cells = [cell for name in names for cell in _full(row, name)]
            counted = (row.seeds, row.unfinished, *_judged(row))
            without = [*_without(row)][: len(suspects)]
            place = _place(results, row, settings)
            writer.writerow([*place, *cells, *counted, *without, *paper, *_against(results, row, gains)])
    return out.getvalue()


def _paper(pair: Pair | None) -> tuple[float | None, float | None]:
    """The paper's number and its deviation."""
    return (pair.paper, pair.spread) if pair else (None, None)


def _judged(row: Row) -> tuple[str, str]:
    """Who is judged mislabeled, and of whom it cannot be told; empty for methods that do not ask."""
    if not row.judged:
        return "", ""
    return row.judged.clients(), row.judged.untold() if row.judged.cannot_tell else ""


def _heads(
    names: Sequence[str], suspects: Sequence[str], published: Sequence[str], gains: Sequence[str]
) -> Iterator[str]:
    """What stands above the numbers."""
    for name in names:
        yield from (name, f"{name}_spread")[: 1 + score_of(name).is_spread]
    yield from ("seeds", "unfinished", "judged_mislabeled", "cannot_tell", *suspects)
    yield from (f"paper_{name}{end}" for name in published for end in ("", "_spread"))
    yield from ["against"] * bool(gains)
    yield from (f"{name}_{end}" for name in gains for end in GAIN)


def _settings(tables: Sequence[Results]) -> list[str]:
    """The settings that tell these scenarios apart, dotted."""
    return list(dict.fromkeys(key for results in tables for key in results.distinction))


def _place(results: Results, row: Row, settings: Sequence[str]) -> tuple[object, ...]:
    own = (results.distinction.get(key) for key in settings)
    return results.title, results.dataset, *_noise(results), row.category, row.method, *own


def _without(row: Row) -> Iterator[object]:
    """Whose test labels are suspect, and what is left without them."""
    yield ", ".join(row.groups.suspects)
    yield row.groups.worst_without
    yield row.groups.average_without


def _noise(results: Results) -> tuple[float | None, float | None]:
    """Rho and eta; None where nobody knows whose labels are wrong, and how many."""
    noise = results.settings.noise
    return (None, None) if results.mislabeled is None else (noise.clients, noise.mean_rate)


def _gains(results: Results) -> Mapping[str, Mapping[str, Difference]]:
    return results.against.differences if results.against else {}


def _against(results: Results, row: Row, names: Sequence[str]) -> Iterator[object]:
    """What the row is compared with and its gains, where any table has some."""
    own = _gains(results).get(row.method, {})
    if names:
        yield results.against.method if results.against and own else None
    for name in names:
        gain = own.get(name)
        yield from (gain.mean, gain.low, gain.high, gain.seeds) if gain else (None,) * len(GAIN)


def _full(row: Row, name: str) -> Iterator[float | None]:
    score = score_of(name)
    value = score.of(row)
    yield value.mean if isinstance(value, Spread) else value
    if score.is_spread:
        yield value.known_std if isinstance(value, Spread) else None


def groups_as_csv(tables: Sequence[Results]) -> str:
    """Every method's score in each test group, one line each; groups that are too small to count say why."""
    settings = _settings(tables)
    classes = list(dict.fromkeys(name for results in tables for name in results.classes))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*PLACE, *settings, *GROUP, *(f"images_of_{name}" for name in classes)])
    for results in tables:
        for row in results.rows:
            place = _place(results, row, settings)
            writer.writerows([*place, *cells] for cells in _group_lines(results, row, classes))
    return out.getvalue()


def _group_lines(results: Results, row: Row, classes: Sequence[str]) -> Iterator[list[object]]:
    """The cells of GROUP, then the images of each class."""
    for own in row.groups.groups:
        score = [results.accuracy, own.score, own.low, own.high, own.images]
        support = dict(zip(results.classes, own.classes or (), strict=False))
        is_worst = own.score == row.groups.worst and len(row.groups.groups) > 1
        marks = [is_worst, own.suspect, row.seeds, row.unfinished, None]
        yield [own.group, *score, *marks, *map(support.get, classes)]
    for group, why in results.uncounted.items():
        yield [group, *[None] * (len(GROUP) - 2), why, *[None] * len(classes)]


def as_json(tables: Sequence[Results]) -> list[dict[str, object]]:
    """All tables as plain data."""
    return [
        {
            "title": results.title,
            "dataset": results.dataset,
            **dict(zip(("rho", "eta"), _noise(results), strict=True)),
            "distinction": dict(results.distinction),
            "groups": results.groups,
            "classes": results.classes,
            "uncounted_groups": dict(results.uncounted),
            "mislabeled": results.mislabeled,
            "rows": [_plain(row) for row in results.rows],
            **({"published": asdict(results.published)} if results.published else {}),
            **({"against": asdict(results.against)} if results.against else {}),
        }
        for results in tables
    ]


def _plain(row: Row) -> dict[str, object]:
    return {
        "method": row.method,
        "name": row.name,
        "category": row.category,
        **{metric: _headline(scores) for metric, scores in row.scores.items()},
        "weight": row.weight,
        "found": asdict(row.judged) if row.judged else None,
        "seeds": row.seeds,
        "unfinished": row.unfinished,
        "replanned": row.replanned,
        "test_groups": asdict(row.groups),
        **({"attack": asdict(row.attack)} if row.attack else {}),
    }


def _headline(scores: Headline) -> dict[str, object]:
    spreads = {"worst": scores.worst, "average": scores.average, "std": scores.std}
    return {name: {"mean": spread.mean, "std": spread.known_std} for name, spread in spreads.items()}
