"""At the site: which of its rows are doubtful, worst first, and a random sample of them all; as a file to fill in."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedpca.atomic import write_whole
from fedpca.auditing.calibration import Calibration, p_values
from fedpca.auditing.summary import label_scores
from fedpca.data.origin import Cells
from fedpca.errors import DataError
from fedpca.rng import numbers

COLUMNS = (
    "row",
    "path",
    "given_label",
    "predicted_label",
    "label_score",
    "p_value",
    "is_label_issue",
    "in_random_sample",
    "reviewed_label",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of a formula
FILE = "suspects.csv"
TRUE, FALSE = ("true", "1", "yes", "wahr", "vrai"), ("false", "0", "no", "", "falsch", "faux")


@dataclass(frozen=True)
class Suspect:
    """One judged row of a client."""

    row: int  # in the client's data, from 0
    path: str  # of the image, or its id; empty where the data have none
    given: str
    predicted: str
    score: float  # how plausible the given label is: low is suspicious
    p_value: float
    is_issue: bool
    in_sample: bool
    reviewed: str = ""
    columns: Cells = ()  # further ones of the file: what the row itself says, where it is a table


def find_suspects(
    probs: Tensor,
    labels: Tensor,
    calibration: Calibration,
    classes: Sequence[str],
    *,
    fdr: float,
    sample: int,
    seed: int,
    client: str,
    rows: Sequence[int] | None = None,
    paths: Sequence[str] | None = None,
) -> list[Suspect]:
    """All rows of a client, worst first, with those marked that are on the list and those that were drawn at random."""
    scores, predicted = label_scores(probs, labels), probs.argmax(dim=1)
    values = p_values(scores, labels, calibration)
    listed = benjamini_hochberg(values, fdr) & (predicted != labels)
    drawn = random_sample(len(labels), sample, seed, client)
    found = [
        Suspect(
            int(rows[i]) if rows is not None else i,
            str(paths[i]) if paths is not None else "",
            classes[int(labels[i])],
            classes[int(predicted[i])],
            float(scores[i]),
            float(values[i]),
            bool(listed[i]),
            i in drawn,
        )
        for i in range(len(labels))
    ]
    return sorted(found, key=lambda own: (not own.is_issue, own.score, own.row))


def with_cells(suspects: Sequence[Suspect], rows: Sequence[int], cells: Sequence[Cells]) -> list[Suspect]:
    """The same rows with what each says in a table; `cells` are those of `rows`."""
    texts = dict(zip(rows, cells, strict=True))
    return [replace(own, columns=texts[own.row]) for own in suspects]


def benjamini_hochberg(p_values: Tensor, fdr: float) -> Tensor:
    """Which of these are listed, so that on average at most the share `fdr` of the list is there by chance."""
    count = len(p_values)
    ranks = torch.arange(1, count + 1, dtype=torch.float64)
    ordered = p_values.double().sort().values
    below = torch.nonzero(ordered <= fdr * ranks / count).flatten()
    return p_values <= ordered[below[-1]] if len(below) else torch.zeros(count, dtype=torch.bool)


def random_sample(count: int, size: int, seed: int, client: str) -> frozenset[int]:
    """Rows drawn at random, the same for the same client and seed; all of them where there are no more."""
    return frozenset(numbers(seed, "audit sample", client).permutation(count)[:size].tolist())


def write_suspects(path: Path, suspects: Sequence[Suspect]) -> None:
    """Writes the rows as CSV with cleanlab's names of columns, in one step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    more = list(dict.fromkeys(name for own in suspects for name, _ in own.columns))
    writer.writerow([*COLUMNS, *map(plain_cell, more)])
    for own in suspects:
        row = as_row(own)
        writer.writerow([plain_cell(row.get(name, "")) for name in (*COLUMNS, *more)])
    write_whole(path, text.getvalue())


def as_row(own: Suspect) -> dict[str, object]:
    """The row by the names of the columns, numbers as they are written."""
    numbers = (f"{own.score:.6g}", f"{own.p_value:.6g}")
    cells = (own.row, own.path, own.given, own.predicted, *numbers, own.is_issue, own.in_sample, own.reviewed)
    return {**dict(own.columns), **dict(zip(COLUMNS, cells, strict=True))}


def plain_cell(value: object) -> str:
    """A cell that no spreadsheet takes for a formula: such a text gets an apostrophe in front."""
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith((*FORMULA, "'")) else text


def cell_text(cell: str) -> str:
    """What `plain_cell` was given, also where a spreadsheet took the apostrophe for its own."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith((*FORMULA, "'")) else cell


def read_suspects(path: Path) -> list[Suspect]:
    """The rows of a file that was written above and may have gone through a spreadsheet since."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"there is no {path}: give the folder of a site, which has {FILE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}): save it as CSV in UTF-8") from None
    head = text.split("\n", 1)[0]
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count))
    names = [name.strip() for name in rows.fieldnames or ()]
    if missing := [name for name in COLUMNS if name not in names]:
        raise DataError(f"{path} must have the columns {', '.join(COLUMNS)}; missing: {', '.join(missing)}")
    rows.fieldnames = names
    found = [_suspect(path, number, row) for number, row in enumerate(rows, start=2)]
    _require_once(path, found)
    return found


def _suspect(path: Path, line: int, row: dict[str, str | None]) -> Suspect:
    cells = {name: (row.get(name) or "").strip() for name in COLUMNS}
    try:
        number = float(cells["row"])
        score, value = (float(cells[name].replace(",", ".")) for name in ("label_score", "p_value"))
        listed, drawn = _flag(cells["is_label_issue"]), _flag(cells["in_random_sample"])
        if number != int(number) or number < 0:
            raise ValueError(f"row {cells['row']!r}")
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"{path}, line {line}: {error} cannot be read; change nothing but the column reviewed_label"
        ) from None
    more = tuple((cell_text(name), cell_text(row[name] or "")) for name in row if name and name not in COLUMNS)
    names = ("path", "given_label", "predicted_label", "reviewed_label")
    where, given, predicted, reviewed = (cell_text(cells[name]) for name in names)
    return Suspect(int(number), where, given, predicted, score, value, listed, drawn, reviewed, more)


def _flag(cell: str) -> bool:
    if (word := cell.lower()) not in (*TRUE, *FALSE):
        raise ValueError(f"{cell!r}, which is neither True nor False,")
    return word in TRUE


def _require_once(path: Path, suspects: Sequence[Suspect]) -> None:
    seen = set[int]()
    for own in suspects:
        if own.row in seen:
            raise DataError(f"{path}: row {own.row} stands there twice; each row must be there once")
        seen.add(own.row)


def with_reviews(suspects: Sequence[Suspect], reviews: dict[int, str]) -> list[Suspect]:
    """The same rows with what was read for some of them, by row."""
    return [replace(own, reviewed=reviews.get(own.row, own.reviewed)) for own in suspects]
