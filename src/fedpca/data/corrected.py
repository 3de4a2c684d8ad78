"""Labels that people corrected after an audit: `data.corrected_labels`, a corrected.csv or a folder of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.data.cache import Dataset
from fedpca.data.formats.csv import csv_rows
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

Labels = NDArray[np.int64]
FILE = "corrected.csv"
COLUMNS = ("row", "path", "given_label", "label")


@dataclass(frozen=True)
class Correction:
    """What a label was and what it shall be."""

    place: str  # file and line, as messages name them
    given: int
    label: int


@dataclass(frozen=True)
class Corrections:
    """What people corrected of each part, by the row in that part."""

    train: Mapping[int, Correction] = field(default_factory=dict)
    test: Mapping[int, Correction] = field(default_factory=dict)
    classes: tuple[str, ...] = ()

    def of_train(self, labels: Labels, rows: Labels) -> Labels:
        """A client's labels with those corrected that stand in these rows of the training part."""
        return self._applied(labels, rows, self.train) if self.train else labels

    def of_test(self, dataset: Dataset) -> Dataset:
        """The dataset with the labels of its test part corrected."""
        if not self.test:
            return dataset
        part = dataset.test
        labels = self._applied(part.labels, np.arange(len(part.labels)), self.test)
        return replace(dataset, test=replace(part, labels=labels))

    def of_all(self, dataset: Dataset) -> Dataset:
        """The dataset with the labels of both parts corrected."""
        part = dataset.train
        labels = self.of_train(part.labels, np.arange(len(part.labels)))
        return replace(self.of_test(dataset), train=replace(part, labels=labels))

    def _applied(self, labels: Labels, rows: Labels, fixes: Mapping[int, Correction]) -> Labels:
        fixed = np.array(labels)
        for place, row in enumerate(rows.tolist()):
            if fix := fixes.get(row):
                if labels[place] != fix.given:
                    got, there = self.classes[fix.given], self.classes[int(labels[place])]
                    raise DataError(
                        f"data.corrected_labels: {fix.place} corrects a label {got!r}, but the data have {there!r} "
                        "there: these corrections belong to other data"
                    )
                fixed[place] = fix.label
        return fixed


def corrections_of(settings: DataSettings, dataset: Dataset, data_dir: Path | None = None) -> Corrections:
    """What `data.corrected_labels` corrects of a dataset; nothing without it."""
    if settings.corrected_labels is None:
        return Corrections()
    from fedpca.data.origin import is_given, origins

    if is_given(settings):
        raise DataError("data.corrected_labels is for data in files: correct the labels that you give in Python there")
    fixes = read_corrections(settings.corrected_labels, dataset.classes)
    places = [
        {row: place for place, row in enumerate(origin.rows.tolist())}
        for origin in origins(settings, dataset, data_dir)
    ]
    if unknown := fixes.keys() - {*places[0], *places[1]}:
        row = min(unknown)
        raise DataError(f"data.corrected_labels: {fixes[row].place} corrects row {row}, which the data do not have")
    train, test = ({own[row]: fix for row, fix in fixes.items() if row in own} for own in places)
    return Corrections(train, test, dataset.classes)


def correction_files(path: Path) -> list[Path]:
    """The file, or those in the folder and in the folders of sites in it."""
    files = [path] if path.is_file() else sorted({*path.glob(FILE), *path.glob(f"*/{FILE}")})
    if not files:
        raise DataError(
            f"data.corrected_labels: {path} is neither a {FILE} nor a folder that has one; `fedpca audit review` "
            "writes it"
        )
    return files


def fingerprint(path: Path | None) -> str | None:
    """A name for the corrections as they are now; None without any."""
    if path is None:
        return None
    digest = blake2b(digest_size=16)
    for file in correction_files(path):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def read_corrections(path: Path, classes: tuple[str, ...]) -> dict[int, Correction]:
    """The corrections in a file, or in all files of a folder, by row of the data."""
    numbers = {name: number for number, name in enumerate(classes)}
    found: dict[int, Correction] = {}
    for file in correction_files(path):
        names, rows = csv_rows(file) if file.read_text(encoding="utf-8-sig").count("\n") > 1 else (list(COLUMNS), [])
        if missing := [name for name in COLUMNS if name not in names]:
            raise DataError(
                f"data.corrected_labels: {file} has no column {missing[0]!r}; it needs {', '.join(COLUMNS)}"
            )
        for line, row in enumerate(rows, start=2):
            number, fix = _correction(f"{file}, line {line}", row, numbers)
            if number in found and found[number].label != fix.label:
                raise DataError(
                    f"data.corrected_labels: {fix.place} and {found[number].place} correct the same row {number} "
                    "in two ways: keep one of them"
                )
            found[number] = fix
    return found


def _correction(place: str, row: Mapping[str, str], numbers: Mapping[str, int]) -> tuple[int, Correction]:
    given, label = (_plain(row[name]) for name in ("given_label", "label"))
    for name in (given, label):
        if name not in numbers:
            raise DataError(f"data.corrected_labels: {place}: {name!r} is no class; there are {', '.join(numbers)}")
    if not row["row"].isdecimal():
        raise DataError(f"data.corrected_labels: {place}: row must be a number from 0 on, got {row['row']!r}")
    return int(row["row"]), Correction(place, numbers[given], numbers[label])


def _plain(cell: str) -> str:
    """A text without the apostrophe that keeps spreadsheets from taking it for a formula."""
    return cell[1:] if cell.startswith("'") and cell[1:2] in ("=", "+", "-", "@", "'") else cell
