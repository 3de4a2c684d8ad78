"""Images that are files of their own, listed in CSV files with a column of labels, or one column per class."""

import csv
from collections.abc import Mapping
from pathlib import Path

from fedpca.data.formats.bounds import MAX_BYTES, OBJECT, require_bytes
from fedpca.data.formats.files import train_and_test
from fedpca.data.formats.pictures import SUFFIXES
from fedpca.data.formats.source import (
    Format,
    Label,
    Layout,
    Picture,
    Source,
    given_labels,
    image_layout,
    require_columns,
)
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings


def _recognise(place: Path, settings: DataSettings) -> Layout | None:
    train, test = train_and_test(place, ".csv")
    if not train:
        return None
    return image_layout((*train, *test), _source(train, settings), _source(test, settings) if test else None)


def _source(files: list[Path], settings: DataSettings) -> Source:
    """A table's rows. Several label columns, parted by commas, are one column per class (1 for the row's class)."""
    image, wanted = settings.image_column, label_names(settings)
    one_hot = wanted if len(wanted) > 1 else ()
    rows: list[dict[str, str]] = []
    labels: list[Label] = []
    pictures: list[tuple[str, Picture]] = []
    for path in files:
        names, new = csv_rows(path, settings.max_bytes)
        require_columns(str(path), names, image, *wanted)
        root = settings.image_root or path.parent
        rows += new
        pictures += [(row[image], _image_file(root, row[image])) for row in new]
        labels += (
            [one_hot_class(row, one_hot, path, line) for line, row in enumerate(new, 2)] if one_hot
            else given_labels([row[wanted[0]] for row in new], f"{path}, column {wanted[0]!r}", "line", 2)
        )  # fmt: skip
    columns = {name: [row.get(name, "") for row in rows] for name in rows[0] if name not in (image, *wanted)}
    place = ", ".join(map(str, files))
    return Source(place, f"column {settings.label_column!r}", labels, lambda: iter(pictures), columns, one_hot)


def label_names(settings: DataSettings) -> tuple[str, ...]:
    """The column of labels, or one column for each class."""
    names = settings.label_column
    return tuple(name.strip() for name in names.split(",")) if "," in names else (names,)


def csv_rows(path: Path, max_bytes: int = MAX_BYTES) -> tuple[list[str], list[dict[str, str]]]:
    """The names of a table's columns, and its rows; a cell that a row lacks is empty."""
    rows: list[dict[str, str]] = []
    taken = path.stat().st_size  # all of it may be one line
    require_bytes(str(path), taken, max_bytes)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file, restkey="", restval="")
            names = list(table.fieldnames or ())
            for row in table:
                rows.append({name: cell.strip() for name, cell in row.items() if name})
                taken += OBJECT * (1 + len(row))
                require_bytes(str(path), taken, max_bytes)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if names and not rows:
        raise DataError(f"{path} has a header but no rows: it must have at least one")
    return names, rows


def _image_file(root: Path, name: str) -> Path | None:
    """The file that a cell names; published tables often leave the suffix out."""
    if not name:
        return None
    paths = (root / f"{name}{suffix}" for suffix in ("", *SUFFIXES))
    return next((path for path in paths if path.is_file()), root / name)


def one_hot_class(row: Mapping[str, str], classes: tuple[str, ...], path: Path, line: int) -> int:
    """The class whose column holds 1, the others 0."""
    try:
        ones = [index for index, name in enumerate(classes) if float(row[name]) == 1]
    except ValueError:
        ones = []
    if len(ones) != 1:
        got = ", ".join(f"{name}={row[name]}" for name in classes)
        raise DataError(f"{path} line {line}: exactly one of the label columns must be 1, got {got}")
    return ones[0]


CSV = Format("csv", "train.csv and test.csv or one .csv file", _recognise)
