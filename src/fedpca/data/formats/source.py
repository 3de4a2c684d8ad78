"""Images and labels as they lie in files, before anything is decoded, and what all layouts have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

Label = int | str


@dataclass(frozen=True)
class Slice:
    """A CT slice in a DICOM file, to be seen through the brain window."""

    path: Path


Picture = bytes | Path | Slice | NDArray[np.uint8] | None  # encoded, in a file, (H, W) or (H, W, C) pixels, or lacking


@dataclass(frozen=True)
class Source:
    """One part of a dataset as it lies in files."""

    place: str  # as messages name it
    label_name: str  # where in that place the labels are, as messages name it
    labels: Sequence[Label]
    pictures: Callable[[], Iterator[tuple[str, Picture]]]  # name and picture of each row, from the first at every call
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()  # where the source names them; labels then count from 0
    features: Mapping[str, Sequence[object]] = field(default_factory=dict)  # of a table, which has no pictures


@dataclass(frozen=True)
class Layout:
    """Files that have been recognised: all that the data depend on, and how to read the train and test part."""

    files: tuple[Path, ...]
    has_test: bool
    read: Callable[[], tuple[Source, Source | None]]
    size: int | None = None  # side of the square that its images are resized to where the settings give none
    note: str = ""  # which of the images these are, where a layout does not take all
    is_table: bool = False  # of numbers and categories, in place of images


@dataclass(frozen=True)
class Format:
    """A layout of files that recognises itself."""

    name: str
    needs: str  # the files it consists of, as messages name them
    recognise: Callable[[Path, DataSettings], Layout | None]  # None where a file or folder is of another layout


def array_source(place: str, label_name: str, x: NDArray[np.generic], labels: Sequence[Label]) -> Source:
    """Images in an array (N, H, W) or (N, H, W, C): uint8, or floats from 0 to 1."""
    if len(x) != len(labels):
        raise DataError(f"{place}: {len(x)} images, but {len(labels)} labels in {label_name}; each needs one")

    def pictures() -> Iterator[tuple[str, Picture]]:
        scale = 255 if x.dtype.kind == "f" else 1
        for row, image in enumerate(x):
            yield f"image {row}", image if image.dtype == np.uint8 else np.rint(image * scale).astype(np.uint8)

    return Source(place, label_name, labels, pictures)


def image_layout(tables: tuple[Path, ...], train: Source, test: Source | None) -> Layout:
    """Sources whose pictures are files of their own, which the data depend on too."""
    pictures = (picture for part in (train, test) if part for _, picture in part.pictures())
    images = (picture for picture in pictures if isinstance(picture, Path))
    return Layout((*tables, *images), test is not None, lambda: (train, test))


def has_image_column(columns: Sequence[str], settings: DataSettings) -> bool:
    """Whether a table has the column of images that the settings name, or they say that there should be one."""
    default = DataSettings.model_fields["image_column"].default
    return settings.image_column in columns or settings.image_column != default


def require_columns(place: str, there: Sequence[str], image: str, *labels: str) -> None:
    """Stops at the first column that a table should have and has not."""
    for name in (image, *labels):
        if name not in there:
            setting = "data.image_column" if name == image else "data.label_column"
            listed = ", ".join(there) or "none"
            raise DataError(f"{place} has no column {name!r}; its columns are {listed}: set {setting} to one of them")


def given_labels(values: Sequence[object], place: str, row: str = "row", first: int = 0) -> list[Label]:
    """Labels as integers or texts; whole numbers that were stored as floats or booleans count as integers.

    Messages count the values from `first`, and call each a `row`.
    """
    labels = []
    for number, value in enumerate(values, first):
        label = _label_of(value)
        if label is None:
            got = repr(value or "nothing")
            raise DataError(f"{place}, {row} {number}: a label must be an integer or a name, got {got}")
        labels.append(label)
    return labels


def _label_of(value: object) -> Label | None:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value if isinstance(value, str) and value else None
