"""Images to learn from: the known datasets, or a user's own, found, fetched if need be, and decoded once."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedpca.data.cache import Dataset, Part, fingerprint, open_or_decode
from fedpca.data.columns import read_columns
from fedpca.data.formats.pictures import Decoding
from fedpca.data.formats.source import Layout
from fedpca.data.known import KNOWN
from fedpca.data.labels import RawDataset, read_raw
from fedpca.data.places import cache_folder, data_folder, find_layout
from fedpca.models.download import Progress
from fedpca.settings.experiment import DataSettings

__all__ = ["Dataset", "Part", "load"]


@dataclass(frozen=True)
class DatasetFiles:
    """Files of a dataset, and the entry of the cache that holds their images decoded, or will."""

    name: str
    layout: Layout
    entry: Path
    settings: DataSettings


def load(
    settings: DataSettings,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset that the settings name, as (N, C, H, W) bytes, or rows of a table, with labels from 0.

    `progress` gets how much of how much is done: bytes of a download, then images decoded.

    >>> from fedpca import Experiment, load
    >>> load(Experiment().data).classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    if is_embedded(settings.dataset):
        return digits()
    tell = progress or (lambda done, total: None)
    return decode(files_of(settings, find_layout(settings, data_folder(data_dir), tell), cache_dir), tell)


def files_of(settings: DataSettings, layout: Layout, cache_dir: Path | None = None) -> DatasetFiles:
    """A dataset's files, as they are now, with their entry of the cache."""
    name = settings.dataset if settings.dataset in KNOWN else Path(settings.dataset).stem
    key = fingerprint(layout.files, decoding_settings(settings, layout.has_test))
    return DatasetFiles(name, layout, cache_folder(cache_dir) / f"{name}-{key}", settings)


def decode(files: DatasetFiles, progress: Progress) -> Dataset:
    """The dataset out of the cache, where it is put first if need be; a table is read each time."""
    if files.layout.is_table:
        return table_dataset(files.name, read_raw(files.layout, files.settings))
    decoding = Decoding(files.settings.image_size or files.layout.size, files.settings.max_pixels)
    return open_or_decode(files.entry, files.name, lambda: read_raw(files.layout, files.settings), decoding, progress)


def table_dataset(name: str, data: RawDataset) -> Dataset:
    """A table's rows in place of images."""
    columns, values = read_columns(data.sources)
    texts = [{name: np.array(own, dtype=np.str_) for name, own in source.columns.items()} for source in data.sources]
    train, test = (
        Part(own[:, :, None, None], labels, text) for own, labels, text in zip(values, data.labels, texts, strict=True)
    )
    return Dataset(name, train, test, data.classes, (), columns)


def is_embedded(name: str) -> bool:
    """Whether a dataset comes with a package: there is nothing to find, to fetch or to decode."""
    return name in KNOWN and KNOWN[name].embedded


def decoding_settings(settings: DataSettings, has_test: bool) -> dict[str, object]:
    """The settings that decoded data depend on; a seed matters only where a test part is split off."""
    names = {"dataset", "image_column", "label_column", "image_root", "image_size"}
    names |= {"group_column"} if settings.group_column is not None else set()  # so that older entries stay known
    names |= {"max_pixels"} if settings.max_pixels != DataSettings.model_fields["max_pixels"].default else set()
    names |= {"split", "column"} if settings.split == "column" and not has_test else set()
    return settings.model_dump(mode="json", include=names if has_test else {*names, "test_share", "seed"})


def digits() -> Dataset:
    """The digits that scikit-learn carries."""
    from fedpca.rng import numbers

    # read from the file that scikit-learn carries: to import the package takes as long as all else before a first round
    spec = find_spec("sklearn")
    package = Path(spec.origin if spec and spec.origin else "").parent
    table = np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images, labels = table[:, :-1], table[:, -1]
    pixels = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    order = numbers(0, "digits").permutation(len(labels))
    train, test = np.split(order, [round(0.8 * len(labels))])
    parts = [Part(pixels[rows], labels[rows].astype(np.int64), {}) for rows in (train, test)]
    return Dataset("digits", parts[0], parts[1], tuple(str(digit) for digit in range(10)), ())
