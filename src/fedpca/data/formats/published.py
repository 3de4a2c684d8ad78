"""The paper's medical images in the layouts that they are published in: ISIC 2019, and RSNA's brain haemorrhages."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fedpca.data.formats.csv import csv_rows, one_hot_class
from fedpca.data.formats.dicom import require_pydicom
from fedpca.data.formats.source import Format, Layout, Picture, Slice, Source
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

ISIC_TABLE = "ISIC_2019_Training_GroundTruth.csv"
ISIC_CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")  # UNK has no image to train on
RSNA_TABLE = "stage_2_train.csv"
RSNA_KINDS = ("any", "epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural")
_ROWS = {f"{kind},{label}": 1 << number for number, kind in enumerate(RSNA_KINDS) for label in (0, 1)}  # a bit per kind
RSNA_CLASSES = ("no haemorrhage", "haemorrhage")
RSNA_IMAGES = 25_000
RSNA_BROKEN = "ID_6431af929"  # breaks off as it is published
SIDE = 224  # of the paper's images


def _recognise_isic(folder: Path, settings: DataSettings) -> Layout | None:
    """ISIC 2019: a table with a column per class, and a folder of JPEG files; None where the table is not there."""
    table = _table_in(folder, ISIC_TABLE)
    if table is None:
        return None
    names, rows = csv_rows(table, settings.max_bytes)
    lacking = [name for name in ("image", *ISIC_CLASSES) if name not in names]
    if lacking:
        there = ", ".join(names) or "none"
        raise DataError(f"{table} has no column {', '.join(lacking)}; its columns are {there}: fetch it again")
    labels = [one_hot_class(row, ISIC_CLASSES, table, line) for line, row in enumerate(rows, 2)]
    images = [row["image"] for row in rows]
    files = _image_files(table.parent, {_plain(name) for name in images}, (".jpg", ".jpeg", ".png"))
    absent = table.parent / "ISIC_2019_Training_Input"
    pictures = [(name, files.get(_plain(name), absent / f"{name}.jpg")) for name in images]
    source = Source(str(table), "the columns of the classes", labels, lambda: iter(pictures), {}, ISIC_CLASSES)
    return Layout((table, *(path for _, path in pictures)), False, lambda: (source, None), SIDE)


def _recognise_rsna(folder: Path, settings: DataSettings) -> Layout | None:
    """RSNA's haemorrhages: a table with six rows an image, and DICOM files or PNG; None where the table is not there.

    A fixed number of images is drawn with the data's seed, whichever of them are there.
    """
    table = _table_in(folder, RSNA_TABLE)
    if table is None:
        return None
    listed = _rsna_labels(table)
    names = _draw(listed, RSNA_IMAGES, settings.seed)
    files = _image_files(table.parent, set(names), (".dcm", ".png", ".jpg", ".jpeg"))
    paths = [files.get(name, table.parent / "stage_2_train" / f"{name}.dcm") for name in names]
    pictures = [(name, _rsna_picture(path)) for name, path in zip(names, paths, strict=True)]
    labels = [listed[name] for name in names]
    source = Source(str(table), "the sub-type any", labels, lambda: iter(pictures), {}, RSNA_CLASSES)

    def read() -> tuple[Source, None]:
        if any(isinstance(picture, Slice) for _, picture in pictures):
            require_pydicom(str(folder))
        return source, None

    note = f"{len(names):,} of the {len(listed):,} images in {table.name}, drawn with data.seed = {settings.seed}"
    return Layout((table, *paths), False, read, SIDE, note if len(names) < len(listed) else "")


def _table_in(folder: Path, name: str) -> Path | None:
    """The table in a folder, or in a folder inside it, as archives unpack."""
    return next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_file()), None)


def _plain(name: str) -> str:
    """ISIC's name of an image; some files, and some rows, add that the image was made smaller."""
    return name.removesuffix("_downsampled")


def _image_files(folder: Path, names: Collection[str], suffixes: Sequence[str]) -> dict[str, Path]:
    """The file of each name that is anywhere below a folder; of several the one with the earliest suffix."""
    found: dict[str, tuple[int, str]] = {}
    for parent, _, files in os.walk(folder):
        for file in files:
            stem, suffix = os.path.splitext(file)
            name = _plain(stem)
            if name in names and suffix.lower() in suffixes:
                path = (suffixes.index(suffix.lower()), os.path.join(parent, file))
                found[name] = min(found.get(name, path), path)
    return {name: Path(path) for name, (_, path) in found.items()}


def _rsna_picture(path: Path) -> Picture:
    return Slice(path) if path.suffix.lower() == ".dcm" else path


def _rsna_labels(table: Path) -> dict[str, int]:
    """Whether there is any haemorrhage in each image; rows that occur twice, as some published ones do, must agree."""
    labels: dict[str, int] = {}
    rows: dict[str, int] = {}  # of each image, a bit per sub-type
    for line, image, rest in _rsna_rows(table):
        rows[image] = rows.get(image, 0) | _ROWS[rest]
        if rest in ("any,0", "any,1") and labels.setdefault(image, int(rest[-1])) != int(rest[-1]):
            earlier = f"an earlier line says {labels[image]}"
            raise DataError(f"{table} line {line}: {image}_{rest}, but {earlier}: fetch it again")
    cut = [image for image, bits in rows.items() if bits != (1 << len(RSNA_KINDS)) - 1]
    if cut or not rows:
        needed = f"each image needs a row for each of {', '.join(RSNA_KINDS)}"
        got = f"{len(cut):,} lack some, the first: {', '.join(cut[:3])}" if cut else "there are none"
        raise DataError(f"{table}: {needed}, but {got}: fetch it again")
    return labels


def _rsna_rows(table: Path) -> Iterator[tuple[int, str, str]]:
    """Line and image of every row, and sub-type with label."""
    try:
        with table.open(encoding="utf-8-sig") as file:
            header = next(file, "").strip()
            if header != "ID,Label":
                got = header or "nothing"
                raise DataError(f"{table}: the columns must be ID,Label, got {got}: fetch it again")
            for line, text in enumerate(file, 2):
                image, _, rest = text.rstrip().rpartition("_")
                if rest not in _ROWS or not image:
                    needed = f"a line must be ID_SUBTYPE,0 or ID_SUBTYPE,1 with one of {', '.join(RSNA_KINDS)}"
                    raise DataError(f"{table} line {line}: {needed}, got {text.strip()!r}: fetch it again")
                yield line, image, rest
    except UnicodeDecodeError as error:
        raise DataError(f"{table} is not a CSV file in UTF-8: {error}") from None


def _draw(listed: Mapping[str, int], count: int, seed: int) -> list[str]:
    """So many names, half of them of each class as far as there are; sorted, and all if there are not more."""
    from fedpca.rng import numbers

    names = sorted(listed.keys() - {RSNA_BROKEN})
    if len(names) <= count:
        return names
    no, yes = ([name for name in names if listed[name] == label] for label in (0, 1))
    positive = min(len(yes), max(count // 2, count - len(no)))
    rng = numbers(seed, "rsna-ich")
    parts = ((no, count - positive), (yes, positive))
    picks = [(part, rng.permutation(len(part))[:wanted]) for part, wanted in parts]
    return sorted(part[row] for part, rows in picks for row in rows)


ISIC = Format("isic", f"{ISIC_TABLE} and its images, ISIC_2019_Training_Input/*.jpg", _recognise_isic)
RSNA = Format("rsna", f"{RSNA_TABLE} and its images, stage_2_train/ID_*.dcm or ID_*.png", _recognise_rsna)
