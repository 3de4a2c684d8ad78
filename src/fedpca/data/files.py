"""Which layout of images and labels there is in a file or folder."""

from __future__ import annotations

from pathlib import Path

from fedpca.data.arrays import batch_layout, idx_layout, npz_layout
from fedpca.data.source import Layout, Source
from fedpca.data.tables import class_folders_layout, csv_layout
from fedpca.faults import DataError
from fedpca.scenario import DataSettings

KINDS = (
    "train*.parquet and test*.parquet, train.csv and test.csv, train/CLASS/* and test/CLASS/*, CLASS/*, "
    "one .parquet, .csv or .npz file, idx files, or CIFAR's python batches"
)


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
    train, every = sorted(folder.glob(f"train*{suffix}")), sorted(folder.glob(f"*{suffix}"))
    if train:
        return train, sorted(folder.glob(f"test*{suffix}"))
    return (every, []) if len(every) == 1 else ([], [])


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
        from fedpca.data.parquet import parquet_source  # here, so that decoded data need not wait for pyarrow

        return parquet_source(train, settings), parquet_source(test, settings) if test else None

    return Layout((*train, *test), bool(test), read)


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
    if not files[0].is_file():
        return None
    for path in files:
        if not path.is_file():
            raise DataError(f"{path} (or .gz) is missing beside {files[0].name}: all four idx files are needed")
    return idx_layout((files[0], files[1]), (files[2], files[3]))


def _batch_files(folder: Path) -> Layout | None:
    train, test = sorted(folder.glob("data_batch_[0-9]")), folder / "test_batch"
    if not train:
        return None
    if not test.is_file():
        raise DataError(f"{test} is missing beside {train[0].name}: all of CIFAR's batches are needed")
    return batch_layout(train, test)


def _class_folders(folder: Path) -> Layout | None:
    train, test = folder / "train", folder / "test"
    if not train.is_dir():
        return class_folders_layout(folder, None)
    return class_folders_layout(train, test if test.is_dir() else None)
