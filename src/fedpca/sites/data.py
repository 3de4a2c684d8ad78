"""What a site brings to a run: its images or its table, its labels, and a way to build the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpca.core import Images, Net, Shard
from fedpca.errors import DataError, SettingsError, UserError
from fedpca.models.build import as_net, build_model, last_linear
from fedpca.sites.columns import ColumnHead, tell_columns
from fedpca.sites.messages import RunHead
from fedpca.sites.settings import SiteSettings

if TYPE_CHECKING:  # each answer is a new process: what is not needed is not loaded
    from fedpca.data.cache import Dataset
    from fedpca.data.given import Rows, UserData
    from fedpca.data.origin import Cells, Origin
    from fedpca.settings.experiment import DataSettings

Labels = NDArray[np.int64]
BuildModel = Callable[[], nn.Module]
LoadData = Callable[[Any], "UserData"]  # of what the engine tells a site about itself
Inputs = tuple[Sequence[Images], tuple[ColumnHead, ...]]  # of the train and the test part; what is told of a table


@dataclass(frozen=True)
class SiteRows:
    """What a person at the site needs to find its rows again; none of it leaves the site."""

    numbers: Labels  # in the site's data, from 0
    paths: Sequence[str]
    cells: Sequence[Cells]  # what each row of a table says; none of images


@dataclass(frozen=True)
class SiteData:
    """What a site brings to a run."""

    train: Shard
    test: Shard | None
    classes: tuple[str, ...]  # names; none where labels are the numbers of the model's outputs
    shape: tuple[int, ...]  # of an image
    build: Callable[[], Net]
    table: tuple[ColumnHead, ...] = ()  # what is told of its columns where it is one, when the site joins
    describe: Callable[[], SiteRows] | None = None  # where the rows to train on come from; None: they have numbers only


ReadData = Callable[[Any, SiteSettings, RunHead], SiteData]  # of the engine's context, the site and the run


def keep_last(read_data: ReadData) -> ReadData:
    """The same, but what was read stays in memory until a message asks for other data: for processes that live on."""
    last: list[tuple[object, SiteData]] = []

    def read(context: object, site: SiteSettings, run: RunHead) -> SiteData:
        key = site, run.model_copy(update={"evaluate": False})
        if not last or last[0][0] != key:
            last[:] = [(key, read_data(context, site, run))]
        return last[0][1]

    return read


def own_folder(context: object, site: SiteSettings, run: RunHead) -> SiteData:
    """The images or rows and the labels that the site's settings name, and the model that the run names."""
    from fedpca.data.datasets import load

    if site.data is None:
        raise SettingsError('the site has no data: its settings must name them, as data = "FOLDER"')
    if run.task.data is None or run.task.model is None:
        raise SettingsError("the run names no model and no way to read data: sites must bring functions of their own")
    settings = run.task.data.model_copy(update={"dataset": str(site.data), "corrected_labels": site.corrected_labels})
    dataset, describe = _rows_of(settings, load(settings), run.task.rows)
    codes = codes_of(dataset.classes, run.classes, site.data)
    inputs, table = (_table_inputs if dataset.table else _images)(dataset, site, run)
    parts = zip(inputs, (dataset.train, dataset.test), strict=True)
    train, test = (Shard(x, torch.from_numpy(codes[part.labels])) for x, part in parts)
    channels, height, width = train.x[torch.arange(1)].shape[1:]
    place = (channels, height, width), len(run.classes or dataset.classes), run.task.plan.seed
    net = partial(build_model, run.task.model, *place, device=site.device)
    return SiteData(train, test, dataset.classes, (channels, height, width), net, table, describe)


def _rows_of(settings: DataSettings, dataset: Dataset, rows: str) -> tuple[Dataset, Callable[[], SiteRows]]:
    """The rows to train on, with labels corrected that people read again; and where these rows come from."""
    from fedpca.data.corrected import corrections_of
    from fedpca.data.origin import joined, origins

    dataset = corrections_of(settings, dataset).of_all(dataset)
    if rows == "train":
        return dataset, lambda: _site_rows(origins(settings, dataset)[0], dataset)
    dataset, origin = joined(dataset, *origins(settings, dataset), own_numbers=False)
    return dataset, lambda: _site_rows(origin, dataset)


def _site_rows(origin: Origin, dataset: Dataset) -> SiteRows:
    from fedpca.data.origin import cells_of

    every = np.arange(len(origin.rows))
    return SiteRows(origin.rows, origin.names, tuple(cells_of(dataset, every)) if dataset.table else ())


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
        from fedpca.data.given import shards_of

        train, test = shards_of(load_data(context), "load_data")
        if run.task.rows == "all" and test:
            train = _both(train, test)
        shape = tuple(train.x[torch.arange(1)].shape[1:])
        return SiteData(train, test, (), shape, partial(net_of, build_model, shape, site.device))

    return read


def _both(train: Shard, test: Shard) -> Shard:
    """All rows of a site, those of its test part last."""
    from fedpca.data.given import Rows

    first = len(train.y)

    def take(rows: Labels) -> Tensor:
        picked = torch.from_numpy(rows)
        late = picked >= first
        found = train.x[picked.masked_fill(late, 0)]
        if late.any():
            found[late] = test.x[picked[late] - first]
        return found

    return Shard(Rows(take, first + len(test.y)), torch.cat([train.y, test.y]))


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


def _images(dataset: Dataset, site: SiteSettings, run: RunHead) -> Inputs:
    if run.table:
        raise DataError(f"{site.data}: these are images, but the site joined with a table of numbers")
    return [_mapped(part.images) for part in (dataset.train, dataset.test)], ()


def _table_inputs(dataset: Dataset, site: SiteSettings, run: RunHead) -> Inputs:
    """Rows as the agreed encoding makes them; before that the bare numbers, and what is told of them."""
    from fedpca.data.standardise import values_of
    from fedpca.sites.encoding import encode_rows, read_encoding

    values = [values_of(part.images) for part in (dataset.train, dataset.test)]
    if encoding := read_encoding(run.table):
        return [torch.from_numpy(encode_rows(encoding, dataset.table, own, site.data)) for own in values], ()
    told = tell_columns(dataset.table, values[0], run.sums and site.sums, site.data)
    return [torch.from_numpy(own[:, :, None, None]) for own in values], tuple(told)


def _mapped(images: NDArray[np.generic]) -> Rows:
    from fedpca.data.given import Rows

    return Rows(lambda rows: torch.from_numpy(images[rows]), len(images))
