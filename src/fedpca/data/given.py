"""Data that a person gives in Python: arrays, tensors or PyTorch datasets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from fedpca.core import Images, Shard
from fedpca.errors import DataError, UserError

UserData = Any  # (x, y), (x, y, x_test, y_test), a PyTorch dataset of (image, label), or two of them
FORMS = "(x, y), (x, y, x_test, y_test), a PyTorch dataset or two"


@dataclass(frozen=True)
class Rows:
    """Images that are read when they are taken: from a memory map, or from a PyTorch dataset."""

    take: Callable[[NDArray[np.int64]], Tensor]
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self.take(rows.numpy())


@dataclass(frozen=True)
class Given:
    """Images with their labels, numbers or names, as a person gave them."""

    images: Images
    labels: NDArray[Any]  # (N,)


def shards_of(given: UserData, source: str) -> tuple[Shard, Shard | None]:
    """Training and, if there is one, test part of what a person gave; labels are the numbers of the classes."""
    train, test = parts_of(given, source)
    return _shard(train), _shard(test) if test else None


def parts_of(given: UserData, source: str) -> tuple[Given, Given | None]:
    """Training and, if there is one, test part of what a person gave; an error names `source`."""
    parts = given if isinstance(given, tuple | list) else (given,)
    datasets = [part for part in parts if isinstance(part, Dataset)]
    if parts and len(parts) <= 2 and len(datasets) == len(parts):
        found = [_from_dataset(part, source) for part in parts]
    elif len(parts) in (2, 4) and not datasets:
        found = [_from_arrays(parts[start], parts[start + 1], source) for start in range(0, len(parts), 2)]
    else:
        got = f"{len(parts)} of {type(parts[0]).__name__}" if parts else "nothing"
        raise UserError(f"{source} must give {FORMS}, got {got}")
    return found[0], found[1] if len(found) > 1 else None


def _shard(part: Given) -> Shard:
    return Shard(part.images, torch.as_tensor(part.labels).to(torch.int64))


def _from_arrays(x: UserData, y: UserData, source: str) -> Given:
    if y is None:
        raise DataError(f"{source}: the labels are missing: each image needs one")
    return _require_labels(as_tensor(x), as_array(y), source)


def _from_dataset(dataset: Dataset[Any], source: str) -> Given:
    """Images are taken when needed; labels are all read now, from `targets` if it has them."""
    count = len(dataset)  # type: ignore[arg-type]
    labels = getattr(dataset, "targets", None)
    labels = [_label(dataset[row], source) for row in range(count)] if labels is None else labels
    take = lambda rows: torch.stack([as_tensor(dataset[int(row)][0]) for row in rows])  # noqa: E731
    return _require_labels(Rows(take, count), as_array(labels), source)


def _label(item: UserData, source: str) -> object:
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise DataError(f"{source}: a dataset must give (image, label), got {type(item).__name__}")
    label: object = item[1].item() if isinstance(item[1], Tensor | np.generic) else item[1]
    return label


def _require_labels(images: Images, labels: NDArray[Any], source: str) -> Given:
    if len(images) != len(labels) or labels.ndim != 1 or not len(labels):
        shape = tuple(getattr(images, "shape", (len(images), "…")))
        raise DataError(f"{source}: each image needs a label, got images {shape}, labels {tuple(labels.shape)}")
    return Given(images, labels)


def as_tensor(values: UserData) -> Tensor:
    """The same numbers as a tensor on the CPU, where possible in the same memory, which nobody writes to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.as_tensor(values if isinstance(values, Tensor | list) else np.asarray(values))
    return tensor.detach().cpu()


def as_array(values: UserData) -> NDArray[Any]:
    """The same values as an array."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.atleast_1d(np.asarray(values))
