"""How much of a file is taken into memory: its header is looked at before anything is unpacked."""

import zipfile
from collections.abc import Sequence
from gzip import GzipFile
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

MAX_BYTES: int = DataSettings.model_fields["max_bytes"].default  # where no settings are at hand
OBJECT = 64  # bytes that a value of a list takes in memory, whatever it takes in a file
_MAX_HEAD = 65_536  # bytes of an array's head
_HEADS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0, (3, 0): npy.read_array_header_2_0}


def require_pixels(width: int, height: int, max_pixels: int) -> None:
    """Refuses an image that its header makes too large to be decoded."""
    if width * height > max_pixels:
        raise ValueError(f"{width}x{height} pixels are more than data.max_pixels = {max_pixels}: make it smaller")


def require_bytes(place: str, count: int, max_bytes: int) -> None:
    """Refuses what would take too much memory."""
    if count > max_bytes:
        got = f"{place} would take {_gigabytes(count)} of memory, more than data.max_bytes = {max_bytes}"
        raise DataError(f"{got}: split it, or raise that setting if the file is what it should be")


def read_bounded(file: IO[bytes] | GzipFile, place: str, max_bytes: int) -> bytes:
    """All that a file unpacks to, unless that is too much."""
    content = file.read(max_bytes + 1)
    require_bytes(place, len(content), max_bytes)
    return content


def require_arrays(path: Path, images: Sequence[str], values: Sequence[str], max_bytes: int) -> None:
    """Refuses an .npz file of which an array claims more than is there, or would take too much memory.

    `values` are the names of arrays that become lists of Python's objects.
    """
    with zipfile.ZipFile(path) as file:
        for name in (*images, *values):
            place, there = f"{path}, array {name}", file.getinfo(f"{name}.npy").file_size
            require_bytes(place, there, max_bytes)
            with file.open(f"{name}.npy") as array:
                shape, kind = array_head(array)
            if kind.hasobject:
                raise ValueError(f"{name} holds Python objects, which are not unpickled")
            claimed = prod(shape) * kind.itemsize
            if claimed > there:
                raise DataError(f"{place} claims {_gigabytes(claimed)}, but has {there} bytes: write the file again")
            require_bytes(place, prod(shape) * max(kind.itemsize, OBJECT if name in values else 0), max_bytes)


def array_head(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array in NumPy's file format."""
    version = npy.read_magic(file)
    if version not in _HEADS:
        raise ValueError(f"version {version} of NumPy's file format is not known")
    shape, _, kind = _HEADS[version](_Bounded(file), max_header_size=_MAX_HEAD)
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    return shape, kind


class _Bounded:
    """A file of which no more is read at a time than a head can have."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read(self, count: int = 0, /) -> bytes:
        if count > _MAX_HEAD:
            raise ValueError(f"its head claims {count} bytes")
        return self.file.read(count)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count < 10**15 else f"{count:.2g} bytes"
