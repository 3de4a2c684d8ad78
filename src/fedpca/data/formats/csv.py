"""Images that are files of their own: listed in CSV files, or in one folder per class."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from fedpca.data.formats.source import Label, Layout, Picture, Source, given_labels, require_columns
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")


# CSV with paths of images


def csv_layout(train: list[Path], test: list[Path], settings: DataSettings) -> Layout:
    """CSV files with a column of paths, and one of labels or one per class."""
    return _image_layout((*train, *test), _csv_source(train, settings), _csv_source(test, settings) if test else None)


def _csv_source(files: list[Path], settings: DataSettings) -> Source:
    """A table's rows. Several label columns, parted by commas, are one column per class (1 for the row's class)."""
    one_hot = tuple(name.strip() for name in settings.label_column.split(",")) if "," in settings.label_column else ()
    image, wanted = settings.image_column, one_hot or (settings.label_column,)
    rows: list[dict[str, str]] = []
    labels: list[Label] = []
    pictures: list[tuple[str, Picture]] = []
    for path in files:
        names, new = csv_rows(path)
        require_columns(str(path), names, image, *wanted)
        root = settings.image_root or path.parent
        rows += new
        pictures += [(row[image], _image_file(root, row[image])) for row in new]
        labels += (
            [hot(row, one_hot, path, line) for line, row in enumerate(new, 2)] if one_hot
            else given_labels([row[wanted[0]] for row in new], f"{path}, column {wanted[0]!r}", "line", 2)
        )  # fmt: skip
    columns = {name: [row.get(name, "") for row in rows] for name in rows[0] if name not in (image, *wanted)}
    place = ", ".join(map(str, files))
    return Source(place, f"column {settings.label_column!r}", labels, lambda: iter(pictures), columns, one_hot)


def csv_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The names of a table's columns, and its rows; a cell that a row lacks is empty."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file, restkey="", restval="")
            names = list(table.fieldnames or ())
            rows = [{name: cell.strip() for name, cell in row.items() if name} for row in table]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if names and not rows:
        raise DataError(f"{path} has a header but no rows: it must list at least one image")
    return names, rows


def _image_file(root: Path, name: str) -> Path | None:
    """The file that a cell names; published tables often leave the suffix out."""
    if not name:
        return None
    paths = (root / f"{name}{suffix}" for suffix in ("", *SUFFIXES))
    return next((path for path in paths if path.is_file()), root / name)


def hot(row: Mapping[str, str], classes: tuple[str, ...], path: Path, line: int) -> int:
    """The class whose column holds 1, the others 0."""
    try:
        ones = [index for index, name in enumerate(classes) if float(row[name]) == 1]
    except ValueError:
        ones = []
    if len(ones) != 1:
        came = ", ".join(f"{name}={row[name]}" for name in classes)
        raise DataError(f"{path} line {line}: exactly one of the label columns must be 1, but came {came}")
    return ones[0]


# Folders of images by class


def class_folders_layout(train: Path, test: Path | None) -> Layout | None:
    """One folder of images per class; None where there are no images to train on."""
    found = _images_by_class(train)
    if not any(found.values()):
        return None
    classes = tuple(sorted(found, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name)))
    trained = _class_source(train, found, classes)
    return _image_layout((), trained, _class_source(test, _images_by_class(test), classes) if test else None)


def _images_by_class(folder: Path) -> dict[str, list[Path]]:
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return {
        path.name: sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
        for path in inner
    }


def _class_source(folder: Path, found: Mapping[str, list[Path]], classes: tuple[str, ...]) -> Source:
    for name, files in found.items():
        if not files:
            raise DataError(f"class folder {folder / name} holds no image ({', '.join(SUFFIXES)}): fill or remove it")
        if name not in classes:
            raise DataError(f"{folder / name}: there is no class {name!r} to train on; there are {', '.join(classes)}")
    rows = [(label, path) for label, name in enumerate(classes) for path in found.get(name, [])]
    if not rows:
        raise DataError(f"{folder} holds no class folders with images; it needs the classes {', '.join(classes)}")
    pictures = [(str(path.relative_to(folder.parent)), path) for _, path in rows]
    return Source(str(folder), "the class folders", [label for label, _ in rows], lambda: iter(pictures), {}, classes)


# What both have in common


def _image_layout(tables: tuple[Path, ...], train: Source, test: Source | None) -> Layout:
    """Sources whose pictures are files of their own, which the data depend on too."""
    pictures = (picture for part in (train, test) if part for _, picture in part.pictures())
    images = (picture for picture in pictures if isinstance(picture, Path))
    return Layout((*tables, *images), test is not None, lambda: (train, test))
