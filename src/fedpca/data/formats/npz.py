"""Images in arrays: .npz files, idx files, and CIFAR's python batches.

Nothing here ever unpickles: .npz files are read without pickle, CIFAR's batches as a list of opcodes.
"""

from __future__ import annotations

import gzip
import math
import pickletools
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.data.formats.source import Label, Layout, Picture, Source, given_labels
from fedpca.errors import DataError

_TRAIN = [("x_train", "y_train"), ("x", "y"), ("train_images", "train_labels"), ("images", "labels")]
_TEST = [("x_test", "y_test"), ("test_images", "test_labels")]
_INTEGERS = ("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1")
_ARRAY_GLOBALS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct", "numpy ndarray",
                  "numpy dtype", "_codecs encode")  # fmt: skip
_OTHER_GLOBALS = ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")


def npz_layout(path: Path) -> Layout:
    """The arrays of images and labels in an .npz file, by their usual names."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an .npz file: write it with numpy.savez(path, x=images, y=labels)")
    with zipfile.ZipFile(path) as file:
        there = {name.removesuffix(".npy") for name in file.namelist()}
    train = next((pair for pair in _TRAIN if there.issuperset(pair)), ("x", "y"))
    test = next((pair for pair in _TEST if there.intersection(pair)), None)
    for pair in (train, test or ()):
        if not there.issuperset(pair):
            names = ", ".join(sorted(there)) or "nothing"
            raise DataError(f"{path} must hold the arrays {' and '.join(pair)}, but holds {names}: rename or add them")

    def read() -> tuple[Source, Source | None]:
        return _npz_source(path, *train), _npz_source(path, *test) if test else None

    return Layout((path,), test is not None, read)


def _npz_source(path: Path, x: str, y: str) -> Source:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays[x], arrays[y]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: {x} and {y} must be plain arrays of numbers that can be read ({error})") from None
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise DataError(f"{path}, array {y}: labels must be of shape (N,), but came {labels.shape}")
    given, place = given_labels(labels.tolist(), f"{path}, array {y}"), f"{path}, array {x}"
    return _array_source(place, f"array {y}", _image_rows(images, place), given)


def _image_rows(x: NDArray[np.generic], place: str) -> NDArray[np.generic]:
    """Images as (N, H, W) or (N, H, W, C), of numbers that are known to fit."""
    if x.ndim == 4 and x.shape[-1] not in (1, 3, 4) and x.shape[1] in (1, 3, 4):
        x = x.transpose(0, 2, 3, 1)
    if x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[-1] not in (1, 3, 4)) or 0 in x.shape[1:]:
        needed = "(N, H, W), (N, H, W, C) or (N, C, H, W) with 1, 3 or 4 channels"
        raise DataError(f"{place}: images must be of shape {needed}, but came {x.shape}")
    top = 1 if x.dtype.kind == "f" else 255
    if x.dtype.kind not in "uif" or (x.size and not (x.min() >= 0 and x.max() <= top)):
        came = f"{x.dtype} from {x.min()} to {x.max()}" if x.dtype.kind in "uif" else str(x.dtype)
        raise DataError(f"{place}: images must be uint8, or float from 0 to 1, but came {came}: scale them")
    return x[..., 0] if x.ndim == 4 and x.shape[-1] == 1 else x


def _array_source(place: str, label_name: str, x: NDArray[np.generic], labels: Sequence[Label]) -> Source:
    if len(x) != len(labels):
        raise DataError(f"{place}: {len(x)} images, but {len(labels)} labels in {label_name}; each needs one")

    def pictures() -> Iterator[tuple[str, Picture]]:
        scale = 255 if x.dtype.kind == "f" else 1
        for row, image in enumerate(x):
            yield f"image {row}", image if image.dtype == np.uint8 else np.rint(image * scale).astype(np.uint8)

    return Source(place, label_name, labels, pictures)


def idx_layout(train: tuple[Path, Path], test: tuple[Path, Path]) -> Layout:
    """A file of images and one of labels for each part, as MNIST is published."""
    return Layout((*train, *test), True, lambda: (_idx_source(*train), _idx_source(*test)))


def _idx_source(images: Path, labels: Path) -> Source:
    given: list[int] = _idx_array(labels, 1).tolist()
    return _array_source(str(images), str(labels), _idx_array(images, 3), given)


def _idx_array(path: Path, axes: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an idx file: 0, 0, 8, number of axes, each axis' length as a big-endian uint32, data."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked ({error}): fetch it again") from None
    start = 4 + 4 * axes
    shape: list[int] = np.frombuffer(data[:start].ljust(start, b"\0"), ">u4")[1:].tolist()
    if data[:4] != bytes((0, 0, 8, axes)) or len(data) != start + math.prod(shape):
        raise DataError(f"{path} is not a whole idx file of unsigned bytes with {axes} axes: fetch it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def batch_layout(train: list[Path], test: Path) -> Layout:
    """CIFAR's batches, as its authors publish them for Python."""
    return Layout((*train, test), True, lambda: (_batch_source(train), _batch_source([test])))


def _batch_source(files: list[Path]) -> Source:
    batches = [_batch(path) for path in files]
    rows = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _array_source(str(files[0]), "'labels'", rows, [label for _, labels in batches for label in labels])


def _batch(path: Path) -> tuple[NDArray[np.uint8], list[int]]:
    """Pixels (n, 3072) and labels of one batch."""
    try:
        texts, labels = _texts_and_labels(path)
    except DataError:
        raise
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is not one of CIFAR's python batches ({error}): fetch it again") from None
    found = [(text, fortran) for text, fortran in texts if labels and len(text) == len(labels) * 3072]
    if len(found) != 1:
        raise DataError(f"{path} is not one of CIFAR's python batches: it needs 'labels' and as many times 3072 pixels")
    text, fortran = found[0]
    data = text.encode("latin-1") if isinstance(text, str) else text
    return np.frombuffer(data, np.uint8).reshape(len(labels), 3072, order="F" if fortran else "C"), labels


def _texts_and_labels(path: Path) -> tuple[list[tuple[str | bytes | bytearray, bool]], list[int]]:
    """All texts of a pickle, each with the last boolean before it, and the integers that follow the text 'labels'.

    Found by walking the opcodes: nothing is executed. A NumPy array's state ends with a boolean, whether its order is
    Fortran's, and the bytes.
    """
    texts: list[tuple[str | bytes | bytearray, bool]] = []
    labels: list[int] = []
    reading = fortran = False
    for opcode, argument, _ in pickletools.genops(path.read_bytes()):
        _refuse_strange_global(path, opcode.name, argument)
        if opcode.name in ("NEWTRUE", "NEWFALSE"):
            fortran = opcode.name == "NEWTRUE"
        if isinstance(argument, str | bytes | bytearray) and opcode.name != "GLOBAL":
            reading = argument in ("labels", b"labels")
            texts.append((argument, fortran))
        elif reading and isinstance(argument, int) and opcode.name in _INTEGERS:
            labels.append(argument)
    return texts, labels


def _refuse_strange_global(path: Path, opcode: str, argument: object) -> None:
    """Stops at a pickle that names anything but NumPy's arrays: it is not CIFAR's, and may be meant to do harm."""
    if opcode in _OTHER_GLOBALS or (opcode == "GLOBAL" and argument not in _ARRAY_GLOBALS):
        named = f"names {argument!r}" if argument else "is of a newer pickle protocol"
        raise DataError(f"{path} {named}, which CIFAR's own batches do not; it was not run. Fetch the batches again")
