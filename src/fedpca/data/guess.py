"""What a user's own data seem to hold: which column has the images, the labels, and the clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedpca.data.check import Report, check
from fedpca.data.formats.csv import csv_rows
from fedpca.data.formats.files import train_and_test
from fedpca.data.formats.pictures import SUFFIXES
from fedpca.errors import DataError
from fedpca.models.download import Progress
from fedpca.settings.experiment import DataSettings

Columns = Mapping[str, Sequence[str]]
LABELS = ("label", "labels", "class", "target", "diagnosis", "dx", "outcome", "y")  # names that columns of labels have
SILOS = ("hospital", "center", "centre", "site", "clinic", "institution", "silo", "client", "owner")  # and of clients
PATIENTS = ("patient", "patient_id", "patientid", "subject", "subject_id", "case_id", "lesion_id")
MAX_CLASSES = 50
MAX_SILOS = 100
MIN_ROWS = 5  # of each client: some are kept for testing, and two are needed for training


@dataclass(frozen=True)
class Guess:
    """What data seem to hold."""

    settings: DataSettings  # how they are read
    report: Report  # what was found so
    silos: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # columns that may name clients: rows of each
    patients: str | None = None  # the column that says which rows are of one patient

    @property
    def is_table(self) -> bool:
        """Whether rows are numbers and categories, without an image."""
        return not self.report.sizes


def guess(place: Path, progress: Progress) -> Guess:
    """What a file or folder holds; an error says what is wrong with it, or which column is missing."""
    columns = columns_of(place)
    settings = DataSettings(dataset=str(place.absolute()), clients=1, image_column=_image_column(columns))
    report = check(settings, None, None, deep=False, progress=progress)
    label = _label_column(columns, settings)
    if report.errors and label:
        settings = settings.model_copy(update={"label_column": label})
        report = check(settings, None, None, deep=False, progress=progress)
    if report.errors:
        raise DataError(f"{place}: {report.errors[0]}")
    patients = next((name for name in columns if name.lower() in PATIENTS), None)
    return Guess(settings, report, _silos(columns, settings), patients)


def columns_of(place: Path) -> Columns:
    """The texts in each column of a CSV or parquet file, or of a folder's training part; none of other layouts."""
    if found := train_and_test(place, ".csv")[0]:
        names, rows = csv_rows(found[0])
        return {name: [row.get(name, "") for row in rows] for name in names if name}
    if found := train_and_test(place, ".parquet")[0]:
        from fedpca.data.formats.parquet_rows import plain_columns

        return plain_columns(found)
    return {}


def _image_column(columns: Columns) -> str:
    """The column that names files of images, where none has the usual name."""
    usual: str = DataSettings.model_fields["image_column"].default
    files = [name for name, values in columns.items() if values and str(values[0]).lower().endswith(SUFFIXES)]
    return usual if usual in columns or not files else files[0]


def _label_column(columns: Columns, settings: DataSettings) -> str | None:
    """A column with a usual name, else the last one with a few values."""
    named = [name for word in LABELS for name in columns if name.lower() == word]
    few = [name for name, values in columns.items() if 2 <= len(set(values)) <= MAX_CLASSES]
    others = [name for name in few if name != settings.image_column and name.lower() not in SILOS]
    return next(iter([*named, *reversed(others)]), None)


def _silos(columns: Columns, settings: DataSettings) -> dict[str, dict[str, int]]:
    """Columns of texts, or with a usual name, of which every value has some rows; usual names first."""
    found = {}
    for name in sorted(columns, key=lambda name: name.lower() not in SILOS):
        counts = dict(Counter(columns[name]).most_common())
        usable = 2 <= len(counts) <= MAX_SILOS and min(counts.values()) >= MIN_ROWS and "" not in counts
        is_name = name.lower() in SILOS or not any(map(_is_number, counts))
        if usable and is_name and name not in (settings.image_column, settings.label_column):
            found[name] = counts
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
