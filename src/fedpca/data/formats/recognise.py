"""Which layout of images and labels there is in a file or folder."""

from __future__ import annotations

import re
from pathlib import Path

from fedpca.data.formats.csv import class_folders_layout, csv_layout
from fedpca.data.formats.npz import batch_layout, idx_layout, npz_layout
from fedpca.data.formats.published import isic_layout, rsna_layout
from fedpca.data.formats.source import Layout, Source
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

KINDS = (
    "train*.parquet and test*.parquet, train.csv and test.csv, train/CLASS/* and test/CLASS/*, CLASS/*, "
    "one .parquet, .csv or .npz file, idx files, or CIFAR's python batches"
)
_PIECE = re.compile(r"(.+)-\d+-of-(\d+)")  # of a parquet file in several, as the hub names them


def recognise(place: Path, settings: DataSettings) -> Layout | None:
    """How the file or folder at a place is laid out; None if there is nothing of a known layout."""
    if place.is_file():
        return _file(place, settings)
    if not place.is_dir():
        return None
    return (
        _parquet_files(place, settings)
        or _idx_files(place)
        or _batch_files(place)
        or _published(place, settings)
        or _csv_files(place, settings)
        or _npz_file(place)
        or _class_folders(place)
    )


def _file(path: Path, settings: DataSettings) -> Layout | None:
    match path.suffix.lower():
        case ".parquet":
            return _parquet_layout([path], [], settings)
        case ".csv":
            return csv_layout([path], [], settings)
        case ".npz":
            return npz_layout(path)
    return None


def _train_and_test(folder: Path, suffix: str) -> tuple[list[Path], list[Path]]:
    """The files of each part in a folder; a lone file of another name is all there is to train on."""
    train, test, every = (sorted(folder.glob(f"{start}{suffix}")) for start in ("train*", "test*", "*"))
    if test and not train:
        raise DataError(f"{folder}: train*{suffix} is missing beside {test[0].name}: fetch or copy it again")
    _require_all_pieces(train + test)
    if train:
        return train, test
    return (every, []) if len(every) == 1 else ([], [])


def _require_all_pieces(files: list[Path]) -> None:
    """Stops where a file of `…-00000-of-00003.parquet` and so on is missing."""
    for path in files:
        if found := _PIECE.fullmatch(path.stem):
            start, width, count = found[1], len(found[2]), int(found[2])
            names = [f"{start}-{number:0{width}}-of-{found[2]}{path.suffix}" for number in range(count)]
            _require_files([path.with_name(name) for name in names])


def _require_files(files: list[Path]) -> None:
    lacking = [path.name for path in files if not path.is_file()]
    if lacking:
        place, verb = files[0].parent, "is" if len(lacking) == 1 else "are"
        raise DataError(f"{place}: {', '.join(lacking)} {verb} missing of {len(files)} files: fetch or copy them again")


def _parquet_files(folder: Path, settings: DataSettings) -> Layout | None:
    train, test = _train_and_test(folder, ".parquet")
    if not train:
        nested = sorted({path.parent for path in folder.glob("*/train*.parquet")})
        if len(nested) > 1:
            names = ", ".join(path.name for path in nested)
            raise DataError(f"{folder} holds several datasets ({names}): set data.dataset to the path of one of them")
        train, test = _train_and_test(nested[0], ".parquet") if nested else ([], [])
    return _parquet_layout(train, test, settings) if train else None


def _parquet_layout(train: list[Path], test: list[Path], settings: DataSettings) -> Layout:
    def read() -> tuple[Source, Source | None]:
        from fedpca.data.formats.parquet import parquet_source  # here, so that decoded data need not wait for pyarrow

        return parquet_source(train, settings), parquet_source(test, settings) if test else None

    return Layout((*train, *test), bool(test), read)


def _published(folder: Path, settings: DataSettings) -> Layout | None:
    """A dataset that its table gives away, unless the settings say how to read the table."""
    if settings.label_column != DataSettings.model_fields["label_column"].default:
        return None
    return isic_layout(folder, settings) or rsna_layout(folder, settings)


def _csv_files(folder: Path, settings: DataSettings) -> Layout | None:
    train, test = _train_and_test(folder, ".csv")
    return csv_layout(train, test, settings) if train else None


def _npz_file(folder: Path) -> Layout | None:
    train, _ = _train_and_test(folder, ".npz")
    return npz_layout(train[0]) if len(train) == 1 else None


def _idx_files(folder: Path) -> Layout | None:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    choices = [[folder / f"{name}-ubyte{end}" for end in ("", ".gz")] for name in names]
    files = [next((path for path in paths if path.is_file()), paths[0]) for paths in choices]
    if not any(path.is_file() for path in files):
        return None
    _require_files(files)
    return idx_layout((files[0], files[1]), (files[2], files[3]))


def _batch_files(folder: Path) -> Layout | None:
    train, test = [folder / f"data_batch_{number}" for number in range(1, 6)], folder / "test_batch"
    if not any(path.is_file() for path in (*train, test)):
        return None
    _require_files([*train, test])
    return batch_layout(train, test)


def _class_folders(folder: Path) -> Layout | None:
    train, test = folder / "train", folder / "test"
    if not train.is_dir():
        return class_folders_layout(folder, None)
    return class_folders_layout(train, test if test.is_dir() else None)
