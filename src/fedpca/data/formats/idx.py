"""Images and labels in idx files, as MNIST is published."""

import gzip
import math
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.data.formats.bounds import OBJECT, read_bounded
from fedpca.data.formats.files import require_files
from fedpca.data.formats.source import Format, Layout, Source, array_source
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

_NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def _recognise(place: Path, settings: DataSettings) -> Layout | None:
    choices = [[place / f"{name}-ubyte{end}" for end in ("", ".gz")] for name in _NAMES]
    files = [next((path for path in paths if path.is_file()), paths[0]) for paths in choices]
    if not any(path.is_file() for path in files):
        return None
    require_files(files)
    read = partial(_source, max_bytes=settings.max_bytes)
    return Layout(tuple(files), True, lambda: (read(*files[:2]), read(*files[2:])))


def _source(images: Path, labels: Path, max_bytes: int) -> Source:
    given: list[int] = _array(labels, 1, max_bytes // OBJECT).tolist()
    return array_source(str(images), str(labels), _array(images, 3, max_bytes), given)


def _array(path: Path, axes: int, max_bytes: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an idx file: 0, 0, 8, number of axes, each axis' length as a big-endian uint32, data."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = read_bounded(file, str(path), max_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked ({error}): fetch it again") from None
    start = 4 + 4 * axes
    shape: list[int] = np.frombuffer(data[:start].ljust(start, b"\0"), ">u4")[1:].tolist()
    if data[:4] != bytes((0, 0, 8, axes)) or len(data) != start + math.prod(shape):
        raise DataError(f"{path} is not a whole idx file of unsigned bytes with {axes} axes: fetch it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


IDX = Format("idx", "the four idx files of MNIST", _recognise)
