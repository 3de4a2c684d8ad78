"""Which layout of images or numbers and labels there is in a file or folder."""

from pathlib import Path

from fedpca.data.formats.cifar import CIFAR
from fedpca.data.formats.csv import CSV
from fedpca.data.formats.files import reading
from fedpca.data.formats.folder import FOLDER
from fedpca.data.formats.idx import IDX
from fedpca.data.formats.npz import NPZ
from fedpca.data.formats.parquet import PARQUET
from fedpca.data.formats.published import ISIC, RSNA
from fedpca.data.formats.source import Layout
from fedpca.data.formats.table import TABLE
from fedpca.settings.experiment import DataSettings

# asked in this order
FORMATS = {known.name: known for known in (PARQUET, IDX, CIFAR, ISIC, RSNA, TABLE, CSV, NPZ, FOLDER)}
KINDS = "; ".join(known.needs for known in FORMATS.values())


def recognise(place: Path, settings: DataSettings, only: str | None = None) -> Layout | None:
    """How the file or folder at a place is laid out; None if there is nothing of a known layout, or of `only` that."""
    names = [only] if only else [name for name in FORMATS if name not in _excluded(settings)]
    layouts = (FORMATS[name].recognise(place, settings) for name in names)
    with reading(place):
        return next((layout for layout in layouts if layout), None) if place.exists() else None


def _excluded(settings: DataSettings) -> tuple[str, ...]:
    """Datasets that their table gives away, where the settings say how to read the table."""
    default = DataSettings.model_fields["label_column"].default
    return () if settings.label_column == default else (ISIC.name, RSNA.name)
