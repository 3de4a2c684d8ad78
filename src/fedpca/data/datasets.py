"""Images to learn from: the known datasets, or a user's own, found, fetched if need be, and decoded once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from fedpca.data.cache import Dataset, Part, Progress, Undecoded, decoded, fingerprint
from fedpca.data.folders import whole_folder
from fedpca.data.formats.recognise import KINDS, recognise
from fedpca.data.formats.source import Label, Layout, Source
from fedpca.data.known import KNOWN
from fedpca.errors import DataError
from fedpca.settings.catalogue import DATASETS
from fedpca.settings.experiment import DataSettings

__all__ = ["Dataset", "Part", "load"]

HUB = "https://huggingface.co/datasets"  # where known datasets are downloaded from
HUB_FILES = ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet")
SYSTEM = Path("/usr/share/datasets")  # where Debian's dataset packages install
TIMEOUT = 30  # seconds without a byte
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """Files of a dataset, and the entry of the cache that holds their images decoded, or will."""

    name: str
    layout: Layout
    entry: Path
    settings: DataSettings


def load(
    settings: DataSettings,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset that the settings name, as (N, C, H, W) bytes with labels from 0.

    `progress` is told how much of how much is done: bytes of a download, then images decoded.
    """
    if settings.dataset == "digits":
        return digits()
    tell = progress or (lambda done, total: None)
    return decode(found(settings, located(settings, data_folder(data_dir), tell), cache_dir), tell)


def found(settings: DataSettings, layout: Layout, cache_dir: Path | None = None) -> Found:
    """Files that have been recognised, as they are now, with their entry of the cache."""
    name = settings.dataset if settings.dataset in KNOWN else Path(settings.dataset).stem
    key = fingerprint(layout.files, decoding(settings, layout.has_test))
    return Found(name, layout, _folder(cache_dir, "FEDPCA_CACHE", "decoded") / f"{name}-{key}", settings)


def decode(files: Found, progress: Progress) -> Dataset:
    """The dataset out of the cache, where it is put first if need be."""
    size = files.settings.image_size or files.layout.size
    return decoded(files.entry, files.name, lambda: undecoded(files.layout, files.settings), size, progress)


def data_folder(given: Path | None) -> Path:
    """The folder of datasets."""
    return _folder(given, "FEDPCA_DATA", "data")


def _folder(given: Path | None, variable: str, kind: str) -> Path:
    """The folder of the argument, else of the environment, else of the user's cache."""
    return given or Path(os.environ.get(variable) or _user_folder(kind)).expanduser()


def _user_folder(kind: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpca" / kind


def decoding(settings: DataSettings, has_test: bool) -> dict[str, object]:
    """The settings that decoded data depend on; a seed matters only where a test part is split off."""
    names = {"dataset", "image_column", "label_column", "image_root", "image_size"}
    return settings.model_dump(mode="json", include=names if has_test else {*names, "test_share", "seed"})


def digits() -> Dataset:
    """The digits that scikit-learn carries."""
    from fedpca.rng import numbers

    # read from the file that scikit-learn carries: to import the package takes as long as all else before a first round
    spec = find_spec("sklearn")
    package = Path(spec.origin if spec and spec.origin else "").parent
    table = np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images, labels = table[:, :-1], table[:, -1]
    pixels = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    order = numbers(0, "digits").permutation(len(labels))
    train, test = np.split(order, [round(0.8 * len(labels))])
    parts = [Part(pixels[rows], labels[rows].astype(np.int64), {}) for rows in (train, test)]
    return Dataset("digits", parts[0], parts[1], tuple(str(digit) for digit in range(10)), ())


# Where the files are


def located(settings: DataSettings, data: Path, progress: Progress) -> Layout:
    """The files of a dataset; a known one that is nowhere to be found is downloaded."""
    if there := recognised(settings, data):
        return there[1]
    name, known = settings.dataset, KNOWN.get(settings.dataset)
    if not known or not known.hub:
        raise not_found(name, data)
    target = _user_folder("data") / name
    download(known.hub, target, places(name, data), progress)
    if layout := recognise(target, settings):
        return layout
    raise DataError(f"{target} holds something else than {name}: remove that folder, so that it can be downloaded")


def recognised(settings: DataSettings, data: Path) -> tuple[Path, Layout] | None:
    """Where a dataset is, and its layout; None if it is nowhere. Nothing is fetched."""
    known = KNOWN.get(settings.dataset)
    for place in places(settings.dataset, data):
        if layout := (known.layout if known else recognise)(place, settings):
            if known and known.has_test and not layout.has_test:
                raise DataError(f"{place}: the test part of {settings.dataset} is missing; there must be {known.needs}")
            return place, layout
    return None


def places(name: str, data: Path) -> list[Path]:
    """Where a dataset may be, in the order in which it is looked for."""
    known = KNOWN.get(name)
    if not known:
        return [data / name, Path(name).expanduser()]
    anywhere = [] if known.layout is recognise else [data]  # a table of its own gives it away
    others = [SYSTEM / name, _user_folder("data") / name] if known.hub else [Path(name)]
    return list(dict.fromkeys([*(data / folder for folder in known.folders), *anywhere, *others]))


def not_found(name: str, data: Path) -> DataError:
    """What to tell where nothing of a dataset is recognised."""
    known, looked_in = KNOWN.get(name), places(name, data)
    there = next((place for place in looked_in if place.exists() and place != data), None)
    if there:
        inside = sorted(path.name for path in there.iterdir()) if there.is_dir() else [f"a file {there.suffix}"]
        came, needs = ", ".join(inside[:8]) or "nothing", known.needs if known else KINDS
        return DataError(f"{there} holds no images in a known layout: there is {came}, but there must be {needs}")
    if known:
        listed = ", ".join(map(str, looked_in))
        return DataError(
            f"{name} is not there; looked in {listed}. `fedpca data check {name}` tells where to get it; "
            "--data-dir or FEDPCA_DATA is the folder that it belongs into"
        )
    own = sorted(path.name for path in data.iterdir() if path.is_dir()) if data.is_dir() else []
    names = [*(known for known in DATASETS if known.islower()), *own]
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    looked = " and ".join(str(place) for place in dict.fromkeys(looked_in))
    return DataError(
        f"there is no dataset {name!r}: {hint}There are {', '.join(names)}; looked for {looked}. "
        "Set data.dataset to one of these or to a path, or the data folder with --data-dir or FEDPCA_DATA"
    )


def download(hub: str, target: Path, looked_in: Sequence[Path], progress: Progress) -> None:
    """Fetches a dataset's train and test file into a new folder: both or neither."""
    try:
        with whole_folder(target) as folder:
            for name in HUB_FILES:
                _fetch(f"{HUB}/{hub}/{name}", folder / name, progress)
    except (OSError, HTTPException, ValueError) as error:
        looked = ", ".join(str(place) for place in looked_in)
        raise DataError(
            f"{target.name} was not found in {looked}, and downloading it from {HUB}/{hub} failed: {error}. "
            f"Put {' and '.join(HUB_FILES)} into {looked_in[0]}, or point --data-dir or FEDPCA_DATA to the folder "
            f"that holds {target.name}"
        ) from None


def _fetch(url: str, path: Path, progress: Progress) -> None:
    """A whole parquet file; one that breaks off, or is something else, such as a login page, is an error."""
    with urlopen(Request(url, headers={"User-Agent": "fedpca"}), timeout=TIMEOUT) as answer, path.open("wb") as file:
        total = int(answer.headers.get("Content-Length") or 0)
        while chunk := answer.read(1 << 20):
            file.write(chunk)
            progress(file.tell(), max(total, file.tell()))
    size = path.stat().st_size
    if total and size != total:
        raise OSError(f"{url} broke off after {size} of {total} bytes")
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(-min(4, size), os.SEEK_END)
        if (start, file.read()) != (b"PAR1", b"PAR1"):
            raise OSError(f"{url} did not give a parquet file")


# Labels, and the split of data without a test part


def undecoded(layout: Layout, settings: DataSettings) -> Undecoded:
    """Train and test part before they are decoded, with checked labels."""
    train, test = layout.read()
    known = KNOWN.get(settings.dataset)
    names = (known.classes if known else ()) or train.classes
    labels, classes = _coded(train, test, names)
    if len(np.unique(labels[0])) < 2:
        only = classes[int(labels[0][0])]
        raise DataError(f"{train.place}, {train.label_name}: training needs two classes or more, but all are {only!r}")
    if test:
        return Undecoded((train, test), (labels[0], labels[1]), classes)
    rows = _test_rows(labels[0], settings)
    parts = [np.setdiff1d(np.arange(len(labels[0])), rows), rows]
    return Undecoded(
        (_taken(train, parts[0]), _taken(train, parts[1])), (labels[0][parts[0]], labels[0][parts[1]]), classes
    )


def _coded(train: Source, test: Source | None, names: tuple[str, ...]) -> tuple[list[Labels], tuple[str, ...]]:
    """Labels of each part as numbers from 0, and the name of each number.

    Integers stand for themselves; names are numbered in alphabetical order, or as `names` has them.
    """
    sources = [source for source in (train, test) if source]
    for source in sources:
        if not source.labels:
            raise DataError(f"{source.place} is empty: it must hold at least one image")
    numbers = [_integers(source.labels) for source in sources]
    if all(labels is not None for labels in numbers):
        coded = [labels for labels in numbers if labels is not None]
        return coded, _numbered_classes(sources, coded, names)
    given = {str(label) for label in train.labels}
    classes = names if given <= set(names) else tuple(sorted(given))
    return [_numbered(source, classes) for source in sources], classes


def _integers(labels: Sequence[Label]) -> Labels | None:
    """Labels as integers, also where a text file spells them; None if one is a name."""
    try:
        return np.array([int(label) for label in labels], dtype=np.int64)
    except (ValueError, OverflowError):
        return None


def _numbered(source: Source, classes: tuple[str, ...]) -> Labels:
    numbers = {name: number for number, name in enumerate(classes)}
    for label in source.labels:
        if str(label) not in numbers:
            place = f"{source.place}, {source.label_name}"
            raise DataError(f"{place}: {str(label)!r} is not a class of the training part ({', '.join(classes)})")
    return np.array([numbers[str(label)] for label in source.labels], dtype=np.int64)


def _numbered_classes(sources: list[Source], labels: list[Labels], names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of classes 0, 1, …; refuses labels that cannot be such numbers."""
    count = len(names) or int(labels[0].max()) + 1
    for source, values in zip(sources, labels, strict=True):
        low, high, place = int(values.min()), int(values.max()), f"{source.place}, {source.label_name}"
        if low < 0 or high >= count:
            came = low if low < 0 else high
            remedy = "renumber them, or write names"
            raise DataError(f"{place}: labels must be 0 to {count - 1} for {count} classes, but {came} came: {remedy}")
    distinct = len(np.unique(labels[0]))
    if not names and count > 2 * distinct:
        place = f"{sources[0].place}, {sources[0].label_name}"
        raise DataError(
            f"{place}: labels must be 0, 1, 2, …, but only {distinct} of 0 to {count - 1} occur: "
            "renumber them, or set data.label_column to the column of the classes"
        )
    return names or tuple(str(number) for number in range(count))


def _test_rows(labels: Labels, settings: DataSettings) -> Labels:
    """Rows drawn for testing, the same share of every class; a class of one image is left to training."""
    from fedpca.rng import numbers

    rng = numbers(settings.seed, "test part")
    drawn = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        count = min(max(1, round(settings.test_share * len(rows))), len(rows) - 1)
        drawn.append(rows[:count])
    rows = np.sort(np.concatenate(drawn))
    if not len(rows):
        raise DataError(f"{settings.dataset}: with one image per class none can be kept for testing; add a test part")
    return rows


def _taken(source: Source, rows: Labels) -> Source:
    """The same source with only some of its rows."""
    wanted = set(rows.tolist())
    return replace(
        source,
        labels=[source.labels[row] for row in rows],
        columns={name: [values[row] for row in rows] for name, values in source.columns.items()},
        pictures=lambda: (item for row, item in enumerate(source.pictures()) if row in wanted),
    )
