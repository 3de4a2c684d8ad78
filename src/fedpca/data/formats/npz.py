"""Images and labels as arrays in an .npz file, read without pickle."""

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.data.formats.bounds import require_arrays
from fedpca.data.formats.files import train_and_test
from fedpca.data.formats.source import Format, Label, Layout, Source, array_source, given_labels
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

_TRAIN = [("x_train", "y_train"), ("x", "y"), ("train_images", "train_labels"), ("images", "labels")]
_TEST = [("x_test", "y_test"), ("test_images", "test_labels")]


def _recognise(place: Path, settings: DataSettings) -> Layout | None:
    files, _ = train_and_test(place, ".npz")
    return _layout(files[0], settings.max_bytes) if len(files) == 1 else None


def _layout(path: Path, max_bytes: int) -> Layout:
    """The arrays of images and labels in an .npz file."""
    train, test = array_names(path)

    def read() -> tuple[Source, Source | None]:
        return _npz_source(path, *train, max_bytes), _npz_source(path, *test, max_bytes) if test else None

    return Layout((path,), test is not None, read)


def array_names(path: Path) -> tuple[tuple[str, str], tuple[str, str] | None]:
    """The names of x and y of each part in an .npz file: the first of the usual ones that are there."""
    try:
        with zipfile.ZipFile(path) as file:
            there = {name.removesuffix(".npy") for name in file.namelist()}
    except OSError:
        raise
    except Exception as error:  # whatever broken bytes can bring about in zipfile
        remedy = "write it with numpy.savez(path, x=images, y=labels)"
        raise DataError(f"{path} is not an .npz file ({error}): {remedy}") from None
    train = next((pair for pair in _TRAIN if there.issuperset(pair)), ("x", "y"))
    test = next((pair for pair in _TEST if there.intersection(pair)), None)
    for pair in (train, test or ()):
        if not there.issuperset(pair):
            names = ", ".join(sorted(there)) or "nothing"
            raise DataError(f"{path} must hold the arrays {' and '.join(pair)}, but holds {names}: rename or add them")
    return train, test


def _npz_source(path: Path, x: str, y: str, max_bytes: int) -> Source:
    images, labels = read_arrays(path, x, y, max_bytes)
    place = f"{path}, array {x}"
    return array_source(place, f"array {y}", _image_rows(images, place), labels)


def read_arrays(
    path: Path, x: str, y: str, max_bytes: int, table: bool = False
) -> tuple[NDArray[np.generic], list[Label]]:
    """The samples and the labels of a part; those of a table are lists of numbers in the end."""
    try:
        require_arrays(path, () if table else (x,), (x, y) if table else (y,), max_bytes)
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays[x], arrays[y]
    except DataError:
        raise
    except Exception as error:  # whatever broken bytes can bring about in zipfile, zlib, lzma and NumPy
        raise DataError(f"{path}: {x} and {y} must be plain arrays of numbers that can be read ({error})") from None
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise DataError(f"{path}, array {y}: labels must be of shape (N,), got {labels.shape}")
    return images, given_labels(labels.tolist(), f"{path}, array {y}")


def _image_rows(x: NDArray[np.generic], place: str) -> NDArray[np.generic]:
    """Images as (N, H, W) or (N, H, W, C), of numbers that are known to fit."""
    if x.ndim == 4 and x.shape[-1] not in (1, 3, 4) and x.shape[1] in (1, 3, 4):
        x = x.transpose(0, 2, 3, 1)
    if x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[-1] not in (1, 3, 4)) or 0 in x.shape[1:]:
        needed = "(N, H, W), (N, H, W, C) or (N, C, H, W) with 1, 3 or 4 channels"
        raise DataError(f"{place}: images must be of shape {needed}, got {x.shape}")
    top = 1 if x.dtype.kind == "f" else 255
    if x.dtype.kind == "f" and x.size and not np.isfinite(x.sum(dtype=np.float64)):
        _require_finite(x, place)
    if x.dtype.kind not in "uif" or (x.size and not (x.min() >= 0 and x.max() <= top)):
        got = f"{x.dtype} from {x.min()} to {x.max()}" if x.dtype.kind in "uif" else str(x.dtype)
        raise DataError(f"{place}: images must be uint8, or float from 0 to 1, got {got}: scale them")
    return x[..., 0] if x.ndim == 4 and x.shape[-1] == 1 else x


def _require_finite(x: NDArray[np.generic], place: str) -> None:
    """Names the first image that has a value which is no number."""
    bad = [row for row, image in enumerate(x) if not np.isfinite(image.astype(np.float64)).all()]
    if bad:
        raise DataError(
            f"{place}: image {bad[0]} (counted from 0) holds NaN or infinite values, {len(bad)} of {len(x)} images do: "
            "take them out, or replace these values"
        )


NPZ = Format("npz", "one .npz file", _recognise)
