"""What a site brings to a run: its images and labels, and a way to build the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from fedpca.core import Net, Shard
from fedpca.errors import DataError, SettingsError, UserError
from fedpca.models.build import as_net, build_model, last_linear
from fedpca.sites.messages import RunHead
from fedpca.sites.settings import SiteSettings

Labels = NDArray[np.int64]
BuildModel = Callable[[], nn.Module]
UserData = Any  # what a user's own function gives: see `shards_of`
LoadData = Callable[[Any], UserData]  # of what the engine tells a site about itself


@dataclass(frozen=True)
class SiteData:
    """What a site brings to a run."""

    train: Shard
    test: Shard | None
    classes: tuple[str, ...]  # names; none where labels are the numbers of the model's outputs
    shape: tuple[int, ...]  # of an image
    build: Callable[[], Net]


ReadData = Callable[[Any, SiteSettings, RunHead], SiteData]  # of the engine's context, the site and the run


@dataclass(frozen=True)
class Rows:
    """Images that are read when they are taken: from a memory map, or from a PyTorch dataset."""

    take: Callable[[Labels], Tensor]
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self.take(rows.numpy())


def own_folder(context: object, site: SiteSettings, run: RunHead) -> SiteData:
    """The images and labels that the site's settings name, decoded once; the model that the run names."""
    from fedpca.data.datasets import load, require_images

    if site.data is None:
        raise SettingsError('the site has no data: its settings must name them, as data = "FOLDER"')
    if run.task.data is None or run.task.model is None:
        raise SettingsError("the run names no model and no way to read data: sites must bring functions of their own")
    dataset = load(run.task.data.model_copy(update={"dataset": str(site.data)}))
    require_images(dataset, site.data)
    codes = codes_of(dataset.classes, run.classes, site.data)
    parts = ((_mapped(part.images), torch.from_numpy(codes[part.labels])) for part in (dataset.train, dataset.test))
    train, test = (Shard(*part) for part in parts)
    channels, height, width = dataset.train.images.shape[1:]
    place = (channels, height, width), len(run.classes or dataset.classes), run.task.plan.seed
    net = partial(build_model, run.task.model, *place, device=site.device)
    return SiteData(train, test, dataset.classes, (channels, height, width), net)


def codes_of(own: Sequence[str], agreed: Sequence[str], place: Path) -> Labels:
    """The number of each of the site's classes among those that the federation agreed on; its own without any."""
    if not agreed:
        return np.arange(len(own))
    if unknown := [name for name in own if name not in agreed]:
        raise DataError(f"{place}: the federation has no class {unknown[0]!r}; it has {', '.join(agreed)}")
    return np.array([list(agreed).index(name) for name in own], dtype=np.int64)


def own_functions(load_data: LoadData, build_model: BuildModel) -> ReadData:
    """What a user's two functions give."""

    def read(context: object, site: SiteSettings, run: RunHead) -> SiteData:
        train, test = shards_of(load_data(context))
        shape = tuple(train.x[torch.arange(1)].shape[1:])
        return SiteData(train, test, (), shape, partial(net_of, build_model, shape, site.device))

    return read


def shards_of(given: UserData) -> tuple[Shard, Shard | None]:
    """Training and, if there is one, test part of `(x, y)`, `(x, y, x_test, y_test)`, a dataset or two datasets."""
    parts = given if isinstance(given, tuple | list) else (given,)
    if parts and len(parts) <= 2 and all(isinstance(part, Dataset) for part in parts):
        shards = [_from_dataset(part) for part in parts]
    elif len(parts) in (2, 4):
        shards = [_from_arrays(*parts[start : start + 2]) for start in range(0, len(parts), 2)]
    else:
        got = f"{len(parts)} of {type(parts[0]).__name__}" if parts else "nothing"
        raise UserError(f"load_data must give (x, y), (x, y, x_test, y_test), a dataset or two, got {got}")
    return shards[0], shards[1] if len(shards) > 1 else None


def net_of(build_model: BuildModel, shape: tuple[int, ...], device: str) -> Net:
    """The user's model, ready for training; its last linear layer has an output per class."""
    module = build_model()
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise UserError(
            f"the model {type(module).__name__} has no linear layer; features are what goes into the last one"
        )
    head = getattr(module, "head", None)
    head = last_linear(module, (head if isinstance(head, nn.Linear) else linear[-1]).out_features)
    return as_net(module, head, shape, device)  # type: ignore[arg-type]


def _mapped(images: NDArray[np.generic]) -> Rows:
    return Rows(lambda rows: torch.from_numpy(images[rows]), len(images))


def _from_arrays(x: ArrayLike, y: ArrayLike) -> Shard:
    images, labels = torch.as_tensor(x), torch.as_tensor(y).to(torch.int64)
    if len(images) != len(labels) or labels.ndim != 1 or not len(labels):
        raise DataError(
            f"load_data: each image needs a label, got images {tuple(images.shape)}, labels {tuple(labels.shape)}"
        )
    return Shard(images, labels)


def _from_dataset(dataset: Dataset[Any]) -> Shard:
    """Images are taken when needed; labels are all read now, from `targets` if it has them."""
    count = len(dataset)  # type: ignore[arg-type]
    labels = getattr(dataset, "targets", None)
    labels = [dataset[row][1] for row in range(count)] if labels is None else labels
    take = lambda rows: torch.stack([torch.as_tensor(dataset[int(row)][0]) for row in rows])  # noqa: E731
    return Shard(Rows(take, count), torch.as_tensor(labels).to(torch.int64))
