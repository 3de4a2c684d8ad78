"""Labels that people gave: columns beside the rows of the training part, in a file or in the data themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedpca.data.formats.bounds import MAX_BYTES, require_arrays
from fedpca.data.formats.files import train_and_test
from fedpca.data.labels import class_numbers
from fedpca.data.noise_kind import Labels, NoiseData, Relabel, Rows
from fedpca.errors import DataError, SettingsError, nearest
from fedpca.settings.experiment import NoiseSettings

TRUE = "label"  # the column that, where a file has it, must be equal to the data's own labels
SUFFIXES = (".parquet", ".csv", ".npz")
Cells = Mapping[str, Sequence[object]]  # by column


def check_given(noise: NoiseSettings) -> None:
    """Refuses settings that name no column."""
    if noise.has_rates and (noise.clients > 0 or noise.others_labels > 0 or noise.file or any(noise.rates)):
        raise SettingsError(
            'noise.kind = "given" takes labels from a column: set noise.column, that of the mislabeled clients, or '
            "noise.others, that of the others, and leave noise.labels and noise.others_labels out"
        )


def given_labels(data: NoiseData) -> Relabel:
    """The mislabeled clients' labels out of one column, the others' out of another, or as the data have them."""
    noise = data.settings
    place, cells = _columns(data)
    worse = _column(place, cells, "noise.column", noise.column, data)
    others = _column(place, cells, "noise.others", noise.others, data)

    def relabel(rows: Rows, share: float, mislabeled: bool, rng: np.random.Generator) -> Labels:
        labels: Labels = (worse if mislabeled else others)[rows]
        return labels

    return relabel


def _columns(data: NoiseData) -> tuple[str, Cells]:
    """Where the columns are, and the columns: the file's, or the data's own."""
    if not data.settings.file:
        return "the data", {name: values.tolist() for name, values in data.source.columns.items()}
    place, cells = _read(data.settings, data.data_dir)
    _require_beside(place, cells, data)
    return place, cells


def _read(noise: NoiseSettings, data_dir: Path | None) -> tuple[str, Cells]:
    """Where the file is, and its columns."""
    from fedpca.data.places import data_folder

    name = noise.file or ""
    looked_in = list(dict.fromkeys([data_folder(data_dir) / name, Path(name).expanduser()]))
    for place in looked_in:
        if place.is_file() and place.suffix.lower() not in SUFFIXES:
            raise DataError(f"noise.file: {place} must be one of {', '.join(SUFFIXES)}, got {place.suffix or 'none'}")
        for suffix in SUFFIXES if place.exists() else ():
            if files := train_and_test(place, suffix)[0]:
                return str(place), _cells(files, suffix)
    looked = " and ".join(map(str, looked_in))
    raise DataError(
        f"noise.file: there is no {name!r} with a train file of {', '.join(SUFFIXES)}; looked for {looked}: "
        "give a path, or the name of a folder in the data folder (--data-dir or FEDPCA_DATA)"
    )


def _cells(files: list[Path], suffix: str) -> Cells:
    if suffix == ".parquet":
        from fedpca.data.formats.parquet_rows import plain_columns

        return plain_columns(files)
    if suffix == ".npz":
        return _arrays(files)
    from fedpca.data.formats.csv import csv_rows

    names, rows = csv_rows(files[0])
    return {name: [row[name] for row in rows] for name in names}


def _arrays(files: list[Path]) -> Cells:
    """The one-dimensional arrays of an .npz file."""
    try:
        with np.load(files[0], allow_pickle=False) as arrays:
            require_arrays(files[0], (), arrays.files, MAX_BYTES)
            found = {name: arrays[name] for name in arrays.files}
    except DataError:
        raise
    except Exception as error:  # whatever broken bytes can bring about
        raise DataError(
            f"{files[0]}: it must hold plain arrays of numbers or names that can be read ({error})"
        ) from None
    return {name: values.tolist() for name, values in found.items() if values.ndim == 1}


def _require_beside(place: str, cells: Cells, data: NoiseData) -> None:
    """Refuses a file whose rows are not those of the training part."""
    count, got = len(data.source.labels), len(next(iter(cells.values()), ()))
    if got != count:
        raise DataError(
            f"noise.file: {place} must have a row for each of the {count} rows of the training part, in their order, "
            f"got {got} rows. The data need a test part of their own, and every image must be readable"
        )
    if TRUE in cells:
        same = class_numbers(cells[TRUE], data.classes, f"noise.file: {place}", TRUE)
        if len(different := np.flatnonzero(same != data.source.labels)):
            row = int(different[0])
            got, there = data.classes[same[row]], data.classes[data.source.labels[row]]
            raise DataError(
                f"noise.file: {place} does not belong to these data: its column {TRUE!r} must equal their labels, "
                f"but {len(different)} of {count} rows differ; row {row} has {got!r}, the data have {there!r}"
            )


def _column(place: str, cells: Cells, setting: str, name: str | None, data: NoiseData) -> Labels:
    """A column's labels of the rows that are used; the data's own without a column."""
    if name is None:
        return data.labels
    if name not in cells:
        raise DataError(f"{setting}: {place} has no column {name!r}{nearest(name, cells)}")
    return class_numbers(cells[name], data.classes, f"{setting}: {place}", name)[data.rows]
