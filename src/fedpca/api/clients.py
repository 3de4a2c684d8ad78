"""From what each client gives in Python to one dataset, with a column that says whose each row is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedpca.core import Images
from fedpca.data.columns import Column
from fedpca.data.datasets import Dataset, Part
from fedpca.data.formats.source import Label, Layout, Source, given_labels
from fedpca.data.given import FORMS, Given, UserData, as_tensor, parts_of
from fedpca.data.labels import read_raw
from fedpca.data.origin import ROW
from fedpca.data.standardise import EncodedColumn, encode
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

CLIENT, OWN_ROW = "client", "own row"  # columns: whose, and where among its own; ROW is where among all
Pixels = NDArray[Any]  # uint8 or float32; of a table float64
AT_ONCE = 256  # images of a dataset that are read together
IMAGES = "(N, C, H, W), (N, H, W) or (N, F)"


def dataset_of(clients: Mapping[str, UserData], settings: DataSettings, classes: Sequence[str] = ()) -> Dataset:
    """All clients' data as one dataset, clients in the order of their names: what a file with a client column gives."""
    given = _checked(clients)
    images = {(name, part): read_images(own.images, _place(name, part)) for (name, part), own in given.items()}
    _require_one_shape(images)
    labels, names = _numbered({key: _labels(own, *key) for key, own in given.items()}, classes)
    parts = [part for part in ("train", "test") if any(key[1] == part for key in given)]
    by_part = {part: {key[0]: own for key, own in labels.items() if key[1] == part} for part in parts}
    trained = {name: len(own) for name, own in by_part["train"].items()}  # rows of a test part are counted after these
    sources = {part: _source(part, own, names, trained if part == "test" else {}) for part, own in by_part.items()}
    stores = {part: np.concatenate([own for key, own in images.items() if key[1] == part]) for part in parts}
    raw = read_raw(Layout((), len(parts) > 1, lambda: (sources["train"], sources.get("test"))), settings)
    train, test = (
        _part(stores[part], source, own)
        for part, source, own in zip((parts[0], parts[-1]), raw.sources, raw.labels, strict=True)
    )
    return Dataset("own data", train, test, raw.classes, (), _columns(given, train.images))


def _columns(given: Mapping[tuple[str, str], Given], images: Pixels) -> tuple[Column, ...]:
    """What each column of a table is; nothing of images."""
    first = next(iter(given.values())).images
    is_table = first[torch.arange(1)].ndim == 2
    return tuple(Column(str(number)) for number in range(images.shape[1])) if is_table else ()


def inputs_of(columns: Sequence[Column], encoding: Sequence[EncodedColumn], x: UserData) -> torch.Tensor:
    """What goes into the model for images or rows of a table as those that were trained on."""
    found = read_images(as_tensor(x), "x")
    return torch.from_numpy(encode(encoding, columns, found.reshape(len(found), -1)) if encoding else found)


def _checked(clients: Mapping[str, UserData]) -> dict[tuple[str, str], Given]:
    """What each client gives for training and for testing; either all give a test part, or none does."""
    if not isinstance(clients, Mapping) or len(clients) < 2:
        got = f"{len(clients)} client" if isinstance(clients, Mapping) else type(clients).__name__
        raise DataError(f"clients must map at least two names to data, each {FORMS}; got {got}")
    parts = {name: parts_of(clients[name], f"client {name!r}") for name in sorted(clients, key=str)}
    tested = [name for name, (_, test) in parts.items() if test]
    if tested and len(tested) < len(parts):
        without = next(name for name in parts if name not in tested)
        raise DataError(
            f"client {tested[0]!r} has a test part, but client {without!r} has none: give one to all clients, or to "
            "none, so that test_share is held out of each class"
        )
    found = {(str(name), "train"): train for name, (train, _) in parts.items()}
    return found | {(str(name), "test"): test for name, (_, test) in parts.items() if test}


def _place(name: str, part: str) -> str:
    return f"client {name!r}" + ", test part" * (part == "test")


def read_images(given: Images, place: str) -> Pixels:
    """Images as (N, C, H, W), bytes or single precision; rows of a table as (N, F, 1, 1), in double precision."""
    rows = torch.split(torch.arange(len(given)), AT_ONCE)
    tensor = given if isinstance(given, torch.Tensor) else torch.cat([given[some] for some in rows])
    found = tensor.numpy()
    if found.dtype.kind not in "uif" or found.ndim not in (2, 3, 4) or 0 in found.shape:
        raise DataError(f"{place}: images must be numbers of shape {IMAGES}, got {found.dtype} of {found.shape}")
    if found.ndim == 4 and found.shape[3] in (1, 3) and min(found.shape[1:3]) > 4:
        remedy = "x.transpose(0, 3, 1, 2) puts the channels first"
        raise DataError(f"{place}: images must be of shape {IMAGES}, got {found.shape}: {remedy}")
    found = _numbers(found, place)
    return _with_channels(found)


def _with_channels(found: Pixels) -> Pixels:
    """Grey images with a channel; rows of a table as images of one pixel with F channels."""
    return found[:, None] if found.ndim == 3 else found[:, :, None, None] if found.ndim == 2 else found


def _numbers(found: Pixels, place: str) -> Pixels:
    """Bytes, which stand for 0 to 1, as they are; floats, which go into the model as they are, in single precision."""
    if found.ndim == 2:  # a table, which is standardised; NaN is a missing value
        found = found.astype(np.float64, copy=False)
        return _require_finite(found, ~np.isinf(found), place)
    if found.dtype == np.uint8:
        return found
    if found.dtype.kind != "f":
        remedy = "x.astype('uint8') for 0 to 255, x.astype('float32') for what the model takes as it is"
        raise DataError(f"{place}: images must be uint8 or float, got {found.dtype}: {remedy}")
    found = found.astype(np.float32, copy=False)
    return _require_finite(found, np.isfinite(found), place)


def _require_finite(found: Pixels, good: NDArray[np.bool_], place: str) -> Pixels:
    wrong = np.flatnonzero(~good.reshape(len(good), -1).all(axis=1))
    if len(wrong):
        kind = "image" if found.ndim > 2 else "row"
        raise DataError(f"{place}: {kind} {wrong[0]} has a number that is not finite ({len(wrong)} such {kind}s)")
    return found


def _require_one_shape(images: Mapping[tuple[str, str], Pixels]) -> None:
    (first, model), *others = images.items()
    for key, own in others:
        if own.shape[1:] != model.shape[1:] or own.dtype != model.dtype:
            one, other = (f"{_place(*at)}: {a.dtype} of {a.shape[1:]}" for at, a in ((first, model), (key, own)))
            raise DataError(f"all clients' images must have one shape and type, got {one}, and {other}")


def _labels(given: Given, name: str, part: str) -> list[Label]:
    return given_labels(given.labels.tolist(), _place(name, part), "label of image")


Labels = Mapping[tuple[str, str], Sequence[Label]]


def _numbered(labels: Labels, classes: Sequence[str]) -> tuple[Labels, tuple[str, ...]]:
    """Labels that count classes from 0, or names; other integers as numbers of the classes they stand for."""
    values = {label for (_, part), own in labels.items() if part == "train" for label in own}
    integers = sorted(value for value in values if isinstance(value, int))
    if classes or len(integers) < len(values) or (integers[0] >= 0 and integers[-1] < 2 * len(integers)):
        return labels, tuple(map(str, classes))
    number = {value: place for place, value in enumerate(integers)}
    for (name, part), own in labels.items():
        if unknown := [label for label in own if label not in number]:
            raise DataError(f"{_place(name, part)}: {unknown[0]!r} is not a class of the training parts")
    found = {key: [number[label] for label in own if isinstance(label, int)] for key, own in labels.items()}
    return found, tuple(map(str, integers))


def _source(
    part: str, labels: Mapping[str, Sequence[Label]], classes: tuple[str, ...], before: Mapping[str, int]
) -> Source:
    """One part as if it lay in a file; its images are found again by the column of rows."""
    every = [label for own in labels.values() for label in own]
    owners = [name for name, own in labels.items() for _ in own]
    own = [str(before.get(name, 0) + row) for name, some in labels.items() for row in range(len(some))]
    columns = {CLIENT: owners, ROW: [str(row) for row in range(len(every))], OWN_ROW: own}
    return Source(f"clients, {part} part", "labels", every, lambda: iter(()), columns, classes)


def _part(store: Pixels, source: Source, labels: NDArray[np.int64]) -> Part:
    rows = np.array(source.columns[ROW], dtype=np.int64)
    images = store if len(rows) == len(store) else store[rows]
    columns = {CLIENT: np.array(source.columns[CLIENT], dtype=np.str_)}
    return Part(images, labels, {**columns, ROW: np.array(source.columns[OWN_ROW], dtype=np.str_)})
