"""Images decoded once, into a folder of memory-mapped arrays that is there whole or not at all."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpca.data.columns import Column
from fedpca.data.folders import discard, whole_folder
from fedpca.data.formats.pictures import ColourError, Decoding, Pixels, pixels
from fedpca.data.formats.source import Picture, Source
from fedpca.data.labels import RawDataset
from fedpca.errors import DataError, printable
from fedpca.models.download import Progress

FORMAT = 2  # of an entry; counted up when the same files would be decoded to something else
PARTS = ("train", "test")
Decode = Callable[[Picture], Pixels | str]  # pixels, or why there are none
Named = tuple[str, Pixels | str]  # a picture's name, and what it was decoded to
Result = TypeVar("Result")
First = tuple[str, tuple[int, ...]]  # name and shape of the image that all others must be like
_BATCH = 64  # pictures in memory at once
_PER_THREAD = 8  # pictures that a thread decodes before it is given more
_HEADER = 128  # bytes of a .npy file before its data


@dataclass(frozen=True)
class Part:
    """Images with their labels, for training or for testing."""

    images: NDArray[np.generic]  # uint8 (N, C, H, W), memory-mapped and read-only where they come from the cache;
    # of a table float64 (N, K, 1, 1) as `columns.read_columns` gives them, before a federation standardises them
    labels: NDArray[np.int64]  # (N,), from 0
    columns: Mapping[str, NDArray[np.str_]]  # the source's further columns, (N,) each


@dataclass(frozen=True)
class Dataset:
    """A train and a test part of the same image shape and classes."""

    name: str
    train: Part
    test: Part
    classes: tuple[str, ...]
    skipped: tuple[str, ...]  # one line per image that could not be read: which, and why
    table: tuple[Column, ...] = ()  # what each column is, where these are no images


def fingerprint(files: Sequence[Path], settings: Mapping[str, object]) -> str:
    """A name for what decoding these files, as they are now, under these settings gives."""
    stats = [(path.absolute(), path.stat() if path.exists() else None) for path in files]
    states = [[str(path), stat and stat.st_size, stat and stat.st_mtime_ns] for path, stat in stats]
    text = json.dumps([FORMAT, states, settings], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def open_or_decode(
    entry: Path, name: str, read: Callable[[], RawDataset], decoding: Decoding, progress: Progress
) -> Dataset:
    """The dataset that an entry of the cache holds; a missing or damaged entry is made first."""
    dataset = open_entry(entry, name)
    for _ in range(2):  # again where another process found a damaged entry too, and took away ours in its place
        if dataset is None:
            _make(entry, read, decoding, progress)
            dataset = open_entry(entry, name)
    if dataset is None:
        raise DataError(f"{entry} was damaged while it was written: remove it and start again")
    return dataset


def _make(entry: Path, read: Callable[[], RawDataset], decoding: Decoding, progress: Progress) -> None:
    try:
        discard(entry)
        data = read()
        with whole_folder(entry) as folder:
            _write(folder, data, decoding, progress)
    except OSError as error:
        remedy = "make room there, or set FEDPCA_CACHE to another folder"
        raise DataError(f"decoded images cannot be written to {entry.parent}: {error}; {remedy}") from None


def open_entry(entry: Path, name: str) -> Dataset | None:
    """The dataset in an entry; None where a file is missing, or is not as long as it was when it was written."""
    try:
        about = json.loads((entry / "about.json").read_text(encoding="utf-8"))
        if any((entry / file).stat().st_size != size for file, size in about["sizes"].items()):
            return None
        parts = [_open_part(entry, part, about["columns"][part]) for part in PARTS]
        return Dataset(name, parts[0], parts[1], tuple(about["classes"]), tuple(about["skipped"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _open_part(entry: Path, part: str, columns: Mapping[str, list[str]]) -> Part:
    images = np.load(entry / f"{part}_images.npy", mmap_mode="r", allow_pickle=False)
    labels = np.load(entry / f"{part}_labels.npy", allow_pickle=False)
    return Part(images, labels, {name: np.array(values, dtype=np.str_) for name, values in columns.items()})


def _write(folder: Path, data: RawDataset, decoding: Decoding, progress: Progress) -> None:
    """Fills an entry; `about.json`, with the sizes of the other files, comes last."""
    kept, skipped = _write_images(folder, data.sources, decoding, progress)
    columns = {}
    for part, source, labels, rows in zip(PARTS, data.sources, data.labels, kept, strict=True):
        np.save(folder / f"{part}_labels.npy", labels[rows])
        columns[part] = {name: [values[row] for row in rows] for name, values in source.columns.items()}
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.npy"))}
    about = {"classes": data.classes, "columns": columns, "skipped": skipped, "sizes": sizes}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _write_images(
    folder: Path, sources: tuple[Source, Source], decoding: Decoding, progress: Progress
) -> tuple[list[list[int]], list[str]]:
    """Decodes both parts; gives the rows that could be read of each, and a line for each that could not.

    Starts as if all were grey, and starts again in colour at the first picture that is not.
    """
    try:
        return _write_parts(folder, sources, partial(pixels, decoding, 1), progress)
    except ColourError:
        return _write_parts(folder, sources, partial(pixels, decoding, 3), progress)


def _write_parts(
    folder: Path, sources: tuple[Source, Source], decode: Decode, progress: Progress
) -> tuple[list[list[int]], list[str]]:
    kept: list[list[int]] = []
    skipped: list[str] = []
    first: First | None = None
    done, total = 0, sum(len(source.labels) for source in sources)

    def with_progress(batches: Iterator[list[Named]]) -> Iterator[Named]:
        nonlocal done
        for batch in batches:
            yield from batch
            done += len(batch)
            progress(done, total)

    for part, source in zip(PARTS, sources, strict=True):
        rows, lines, first = _write_part(
            folder / f"{part}_images.npy", with_progress(decode_batches(source, decode)), first
        )
        _require_most(source, rows, lines)
        kept.append(rows)
        skipped += lines
    return kept, skipped


def _write_part(path: Path, images: Iterator[Named], first: First | None) -> tuple[list[int], list[str], First | None]:
    """Appends image by image to a .npy file, whose header is written when their number is known."""
    rows: list[int] = []
    lines: list[str] = []
    with path.open("wb") as file:
        file.write(bytes(_HEADER))
        for row, (name, image) in enumerate(images):
            if isinstance(image, str):
                lines.append(f"{name}: {printable(image)}")
                continue
            first = first or (name, image.shape)
            _require_shape(first, name, image.shape)
            rows.append(row)
            file.write(image.tobytes())
        file.seek(0)
        file.write(_npy_header((len(rows), *(first[1] if first else (0, 0, 0)))))
    return rows, lines, first


def _npy_header(shape: tuple[int, ...]) -> bytes:
    """The start of a .npy file of unsigned bytes, version 1.0, always of the same length."""
    text = repr({"descr": "|u1", "fortran_order": False, "shape": shape})
    return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.ljust(_HEADER - 11).encode() + b"\n"


def _require_shape(first: First, name: str, shape: tuple[int, ...]) -> None:
    if shape != first[1]:
        one, other = (f"{height}x{width}" for _, height, width in (first[1], shape))
        got = f"{first[0]} of {one} (height x width), {name} of {other}"
        raise DataError(f"all images must be of one size, got {got}: set data.image_size to resize them to a square")


def _require_most(source: Source, rows: list[int], lines: list[str]) -> None:
    if not rows or len(lines) > len(rows):
        shown = "; ".join(lines[:3])
        raise DataError(
            f"{source.place}: {len(lines)} of {len(rows) + len(lines)} images cannot be read, the first: {shown}. "
            "At least half must be readable: check the files, data.image_column and data.image_root"
        )


def decode_batches(source: Source, decode: Callable[[Picture], Result]) -> Iterator[list[tuple[str, Result]]]:
    """A source's pictures, named and decoded or otherwise looked at, a batch at a time.

    Large ones are decoded in parallel; for small ones threads would only wait for each other.
    """
    pictures = source.pictures()

    def decode_all(group: list[tuple[str, Picture]]) -> list[tuple[str, Result]]:
        return [(printable(name), decode(picture)) for name, picture in group]

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        while batch := list(islice(pictures, _BATCH)):
            groups = [batch[start : start + _PER_THREAD] for start in range(0, len(batch), _PER_THREAD)]
            apply = map if all(_is_small(picture) for _, picture in batch) else pool.map
            yield [item for group in apply(decode_all, groups) for item in group]


def _is_small(picture: Picture) -> bool:
    return isinstance(picture, np.ndarray) or (isinstance(picture, bytes) and len(picture) < 4096)
