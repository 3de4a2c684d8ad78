"""Tables of numbers and categories: CSV and parquet files without a column of images, .npz arrays of shape (N, F)."""

import csv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from fedpca.data.formats.bounds import array_head, require_bytes
from fedpca.data.formats.csv import csv_rows, label_names, one_hot_class
from fedpca.data.formats.files import train_and_test
from fedpca.data.formats.npz import array_names, read_arrays
from fedpca.data.formats.parquet import parquet_files
from fedpca.data.formats.pictures import SUFFIXES
from fedpca.data.formats.source import Format, Label, Layout, Source, given_labels, has_image_column
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

Cells = Mapping[str, Sequence[object]]  # by column; texts in a CSV file, else values of any type
_IMAGE_FILES = (*SUFFIXES, ".dcm")


def _recognise(place: Path, settings: DataSettings) -> Layout | None:
    if (files := train_and_test(place, ".csv"))[0]:
        cells = partial(_csv_cells, max_bytes=settings.max_bytes)
        return _layout(*files, cells, settings) if _is_csv_table(files[0][0], settings) else None
    if (files := parquet_files(place))[0]:
        cells = partial(_parquet_cells, max_bytes=settings.max_bytes)
        return _layout(*files, cells, settings) if _is_parquet_table(files[0][0], settings) else None
    train, _ = train_and_test(place, ".npz")
    return _npz_layout(train[0], settings) if len(train) == 1 and _is_npz_table(train[0]) else None


def _layout(
    train: list[Path], test: list[Path], read_cells: Callable[[list[Path]], Cells], settings: DataSettings
) -> Layout:
    def read() -> tuple[Source, Source | None]:
        own = partial(_source, settings=settings)
        return own(train, read_cells(train)), own(test, read_cells(test)) if test else None

    return Layout((*train, *test), bool(test), read, is_table=True)


def _source(files: list[Path], cells: Cells, settings: DataSettings) -> Source:
    """A table's rows: the labels, the features, and every other column as text."""
    place, labels = ", ".join(map(str, files)), label_names(settings)
    _require(place, list(cells), labels, "data.label_column")
    features = {name: cells[name] for name in _feature_names(place, list(cells), labels, settings)}
    texts = {
        name: ["" if value is None else str(value) for value in values]
        for name, values in cells.items()
        if name not in labels
    }
    one_hot = labels if len(labels) > 1 else ()
    given = _labels(place, cells, labels, 2 if files[0].suffix.lower() == ".csv" else 0)
    return Source(place, f"column {settings.label_column!r}", given, lambda: iter(()), texts, one_hot, features)


def _labels(place: str, cells: Cells, names: tuple[str, ...], first: int) -> list[Label]:
    if len(names) == 1:
        return given_labels(cells[names[0]], f"{place}, column {names[0]!r}", "line" if first else "row", first)
    rows = ({name: str(cells[name][row]) for name in names} for row in range(len(cells[names[0]])))
    return [one_hot_class(row, names, Path(place), line) for line, row in enumerate(rows, first)]


def _feature_names(place: str, there: list[str], labels: tuple[str, ...], settings: DataSettings) -> list[str]:
    """The columns that go into the model: those that the settings name, or all but those with another use."""
    if settings.feature_columns is not None:
        _require(place, there, settings.feature_columns, "data.feature_columns")
        if used := [name for name in settings.feature_columns if name in (*labels, settings.truth_column)]:
            raise DataError(f"data.feature_columns: {used[0]!r} holds the labels of {place}: it cannot be a feature")
        return list(settings.feature_columns)
    others = {*labels, settings.column, settings.group_column, settings.truth_column}
    if features := [name for name in there if name not in others]:
        return features
    raise DataError(f"{place} has no column but {', '.join(there)}: a table needs one feature at least")


def _require(place: str, there: Sequence[str], names: Sequence[str], setting: str) -> None:
    for name in names:
        if name not in there:
            listed = ", ".join(there) or "none"
            raise DataError(f"{place} has no column {name!r}; its columns are {listed}: set {setting} to one of them")


def _is_csv_table(path: Path, settings: DataSettings) -> bool:
    """Whether a CSV file lists rows of numbers, by its header and first row: no column of images, no image files."""
    require_bytes(str(path), path.stat().st_size, settings.max_bytes)  # all of it may be one line
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(islice(csv.reader(file), 2))
    except (csv.Error, UnicodeDecodeError):
        return False
    if len(rows) < 2 or has_image_column(rows[0], settings):
        return False
    return not any(cell.strip().lower().endswith(_IMAGE_FILES) for cell in rows[1])


def _csv_cells(files: list[Path], max_bytes: int) -> Cells:
    cells: dict[str, list[object]] = {}
    for path in files:
        names, rows = csv_rows(path, max_bytes)
        cells = cells or {name: [] for name in names}
        _require(str(path), names, list(cells), "the header or data.feature_columns")
        for name, values in cells.items():
            values += [row.get(name, "") for row in rows]
    return cells


def _is_parquet_table(path: Path, settings: DataSettings) -> bool:
    from fedpca.data.formats.parquet_rows import holds_images

    return not holds_images(path, settings)


def _parquet_cells(files: list[Path], max_bytes: int) -> Cells:
    from fedpca.data.formats.parquet_rows import all_values

    return all_values(files, max_bytes)


def _is_npz_table(path: Path) -> bool:
    """Whether the array to train on is of shape (N, F), by its header."""
    try:
        with zipfile.ZipFile(path) as file, file.open(f"{array_names(path)[0][0]}.npy") as array:
            shape, kind = array_head(array)
    except Exception:
        return False  # the images' format says what is wrong
    return len(shape) == 2 and kind.kind in "buif"


def _npz_layout(path: Path, settings: DataSettings) -> Layout:
    train, test = array_names(path)

    def read() -> tuple[Source, Source | None]:
        return _npz_source(path, *train, settings), _npz_source(path, *test, settings) if test else None

    return Layout((path,), test is not None, read, is_table=True)


def _npz_source(path: Path, x: str, y: str, settings: DataSettings) -> Source:
    values, labels = read_arrays(path, x, y, settings.max_bytes, table=True)
    place = f"{path}, array {x}"
    if values.ndim != 2 or values.dtype.kind not in "buif":
        raise DataError(f"{place}: it must be a table (N, F) of numbers, got {values.dtype} of shape {values.shape}")
    if len(values) != len(labels):
        raise DataError(f"{place}: {len(values)} rows, but {len(labels)} labels in array {y}; each needs one")
    cells = {str(number): column.tolist() for number, column in enumerate(values.T)}
    features = {name: cells[name] for name in _feature_names(place, list(cells), (), settings)}
    return Source(place, f"array {y}", labels, lambda: iter(()), features=features)


TABLE = Format("table", "a table of numbers and categories as .csv, .parquet or .npz of shape (N, F)", _recognise)
