"""Which files of a folder belong together, and whether one of them is missing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedpca.errors import DataError

_PIECE = re.compile(r"(.+)-\d+-of-(\d+)")  # of a parquet file in several, as the hub names them


@contextmanager
def reading(place: Path | str) -> Iterator[None]:
    """Data that the system does not let us read end in one message."""
    try:
        yield
    except OSError as error:
        name, why = error.filename or place, error.strerror or error
        raise DataError(f"{name!s:.200} cannot be read ({why}): check the file, and who may read it") from None


def train_and_test(place: Path, suffix: str) -> tuple[list[Path], list[Path]]:
    """The files of each part at a place; a lone file of another name is all there is to train on.

    What is no file is none: a folder, a pipe that nobody writes into, a device without end.
    """
    if place.is_file():
        return ([place], []) if place.suffix.lower() == suffix else ([], [])
    starts = ("train*", "test*", "*")
    train, test, every = ([path for path in sorted(place.glob(f"{s}{suffix}")) if path.is_file()] for s in starts)
    if test and not train:
        raise DataError(f"{place}: train*{suffix} is missing beside {test[0].name}: fetch or copy it again")
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
            require_files([path.with_name(name) for name in names])


def require_files(files: list[Path]) -> None:
    """Stops where some of these files are missing."""
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        place, verb = files[0].parent, "is" if len(missing) == 1 else "are"
        raise DataError(f"{place}: {', '.join(missing)} {verb} missing of {len(files)} files: fetch or copy them again")
