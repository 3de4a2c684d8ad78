"""Images in parquet files, as on the Hugging Face hub."""

from pathlib import Path

from fedpca.data.formats.files import train_and_test
from fedpca.data.formats.source import Format, Layout, Source
from fedpca.data.known import KNOWN
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings


def _recognise(place: Path, settings: DataSettings) -> Layout | None:
    train, test = parquet_files(place)
    return _layout(train, test, settings) if train and _may_hold_images(train[0], settings) else None


def parquet_files(place: Path) -> tuple[list[Path], list[Path]]:
    """The files of each part at a place, or in its one folder that has such files."""
    train, test = train_and_test(place, ".parquet")
    if not train:
        nested = sorted({path.parent for path in place.glob("*/train*.parquet")})
        if len(nested) > 1:
            names = ", ".join(path.name for path in nested)
            raise DataError(f"{place} holds several datasets ({names}): set data.dataset to the path of one of them")
        train, test = train_and_test(nested[0], ".parquet") if nested else ([], [])
    return train, test


def _may_hold_images(path: Path, settings: DataSettings) -> bool:
    if settings.dataset in KNOWN:  # which are images: no need to wait for pyarrow
        return True
    from fedpca.data.formats.parquet_rows import holds_images

    return holds_images(path, settings)


def _layout(train: list[Path], test: list[Path], settings: DataSettings) -> Layout:
    def read() -> tuple[Source, Source | None]:
        from fedpca.data.formats.parquet_rows import (
            parquet_source,  # here, so that decoded data need not wait for pyarrow
        )

        return parquet_source(train, settings), parquet_source(test, settings) if test else None

    return Layout((*train, *test), bool(test), read)


PARQUET = Format("parquet", "train*.parquet and test*.parquet or one .parquet file", _recognise)
