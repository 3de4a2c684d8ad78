"""What is there of a dataset, what is missing, and what cannot be read. Nothing is fetched, and nothing written."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from fedpca.data.cache import PARTS, decode_batches, open_entry
from fedpca.data.columns import Column, Values, read_columns
from fedpca.data.datasets import digits, files_of, is_embedded
from fedpca.data.formats.pictures import Size, decoded_size, stated_size
from fedpca.data.formats.source import Layout, Picture, Slice
from fedpca.data.formats.table import TABLE
from fedpca.data.known import KNOWN
from fedpca.data.labels import RawDataset, read_raw
from fedpca.data.places import data_folder, find_files, not_found, places
from fedpca.errors import DataError, printable
from fedpca.models.download import Progress
from fedpca.settings.experiment import DataSettings

_SHOWN = 5  # names in a message
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class Report:
    """What was found of a dataset; complete if there is no error."""

    name: str
    place: Path | None = None  # none where it is nowhere, and for embedded data
    files: int = 0
    bytes: int = 0
    images: Mapping[str, int] = field(default_factory=dict)  # listed in each part
    classes: Mapping[str, int] = field(default_factory=dict)  # images of each, in both parts
    sizes: Mapping[Size, int] = field(default_factory=dict)  # images of each width and height
    columns: Mapping[str, str] = field(default_factory=dict)  # of a table: what each holds
    decoded: Path | None = None  # entry of the cache
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Inspection:
    """What looking at every picture gave."""

    sizes: Counter[Size]
    missing: list[str]  # names
    unreadable: list[str]  # names with reasons


def check(
    settings: DataSettings, data_dir: Path | None, cache_dir: Path | None, deep: bool, progress: Progress
) -> Report:
    """Looks at every file of a dataset: at the headers of images, or `deep`, by decoding each."""
    if is_embedded(settings.dataset):
        return _report_embedded(settings.dataset)
    data, name = data_folder(data_dir), settings.dataset
    there = next((place for place in places(name, data) if place.exists() and place != data), None)
    if not there and name not in KNOWN:
        raise not_found(name, data)
    try:
        files = find_files(settings, data)
    except DataError as error:
        return Report(name, there, errors=(str(error),), notes=_archives(there))
    if files is None:
        return Report(name, there, errors=(_why_nowhere(name, there, data),), notes=_archives(there))
    return _report(settings, files[0], files[1], cache_dir, deep, progress)


def _report(
    settings: DataSettings, place: Path, layout: Layout, cache_dir: Path | None, deep: bool, progress: Progress
) -> Report:
    here = [path for path in layout.files if path.is_file()]
    report = Report(settings.dataset, place, len(here), sum(path.stat().st_size for path in here))
    try:
        data = read_raw(layout, settings)
        columns = _columns(data) if layout.is_table else {}
        seen = _inspect(data, partial(decoded_size if deep else stated_size, settings.max_pixels), progress)
    except DataError as error:
        return replace(report, errors=(str(error),), notes=_archives(place))
    files = files_of(settings, layout, cache_dir)
    counts = np.bincount(np.concatenate(data.labels), minlength=len(data.classes)).tolist()
    total = sum(counts)
    return replace(
        report,
        images=dict(zip(PARTS, map(len, data.labels), strict=True)),
        classes=dict(zip(data.classes, counts, strict=True)),
        sizes=seen.sizes,
        columns=columns,
        decoded=files.entry if open_entry(files.entry, files.name) else None,
        errors=_summary(seen.missing, total, "missing", ", ") + _summary(seen.unreadable, total, "unreadable", "; "),
        notes=_notes(settings, layout, total, seen) + (_archives(place) if seen.missing else ()),
    )


def _columns(data: RawDataset) -> dict[str, str]:
    """What each column of a table holds, and in how many rows there is nothing."""
    columns, parts = read_columns(data.sources)
    values = np.concatenate(parts)
    return {
        column.name: _column(column, values[:, number], int(np.isnan(values[:, number]).sum()))
        for number, column in enumerate(columns)
    }


def _column(column: Column, values: Values, missing: int) -> str:
    absent = f", {missing:,} missing" if missing else ""
    if column.levels:
        return f"category of {len(column.levels)} ({printable(', '.join(column.levels[:_SHOWN]))}){absent}"
    known = values[~np.isnan(values)]
    return f"number, {known.min():g} to {known.max():g}{absent}" if len(known) else "nothing in any row"


def _report_embedded(name: str) -> Report:
    data = digits()
    labels = np.concatenate([data.train.labels, data.test.labels])
    return Report(
        name,
        images={"train": len(data.train.labels), "test": len(data.test.labels)},
        classes=dict(zip(data.classes, np.bincount(labels).tolist(), strict=True)),
        sizes={(8, 8): len(labels)},
        notes=("embedded in scikit-learn; there is nothing to fetch and nothing to decode",),
    )


def _why_nowhere(name: str, there: Path | None, data: Path) -> str:
    """The error of a dataset of which nothing is recognised."""
    if there is None:
        return f"it is not there: looked in {', '.join(map(str, places(name, data)))}"
    if there.is_dir() and not any(there.iterdir()):
        return f"{there} is empty"
    return str(not_found(name, data))


def _inspect(data: RawDataset, size_of: Callable[[Picture], Size | str], progress: Progress) -> _Inspection:
    seen, total, done = _Inspection(Counter(), [], []), sum(map(len, data.labels)), 0

    def look(picture: Picture) -> Size | str | None:
        """Its size, or the reason why there is none; None where its file is missing."""
        path = picture.path if isinstance(picture, Slice) else picture
        return None if isinstance(path, Path) and not path.is_file() else size_of(picture)

    for name, found in chain.from_iterable(batch for source in data.sources for batch in decode_batches(source, look)):
        if found is None:
            seen.missing.append(name)
        elif isinstance(found, str):
            seen.unreadable.append(f"{name} ({printable(found)})")
        else:
            seen.sizes[found] += 1
        progress(done := done + 1, total)
    return seen


def _summary(names: list[str], total: int, what: str, between: str) -> tuple[str, ...]:
    if not names:
        return ()
    rest = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    verb = "is" if len(names) == 1 else "are"
    return (f"{len(names):,} of {total:,} images {verb} {what}: {between.join(sorted(names)[:_SHOWN])}{rest}",)


def _notes(settings: DataSettings, layout: Layout, total: int, seen: _Inspection) -> tuple[str, ...]:
    """What is no error, but worth knowing."""
    known, notes = KNOWN.get(settings.dataset), [layout.note] if layout.note else []
    if known and total != known.images:
        notes.append(f"{total:,} images are listed; {settings.dataset} as published gives {known.images:,}")
    if len(seen.sizes) > 1 and not (settings.image_size or layout.size):
        notes.append("the images are of different sizes: set data.image_size")
    return tuple(notes)


def _archives(place: Path | None) -> tuple[str, ...]:
    """A word about archives that may not have been unpacked."""
    inside = sorted(path.name for path in place.iterdir()) if place and place.is_dir() else []
    packed = [name for name in inside if name.lower().endswith(_ARCHIVES)]
    return (f"{', '.join(packed)} in {place}: unpack it if that was not done",) if packed else ()


def states(data_dir: Path | None) -> Iterator[tuple[str, str, Path | None]]:
    """Name, state and place of every known dataset, then of the user's own folders; of a table the header is read."""
    data = data_folder(data_dir)
    taken = set()
    for name in KNOWN:
        if is_embedded(name):
            yield name, "embedded", None
            continue
        place = next((place for place in places(name, data) if place != data and _has_files(place)), None)
        taken.add(place)
        yield name, "there" if place else "missing", place
    for place in sorted(data.iterdir()) if data.is_dir() else ():
        if place.is_dir() and place not in taken and not place.name.startswith(".") and _has_files(place):
            yield place.name, "table" if _is_table(place) else "yours", place


def _is_table(place: Path) -> bool:
    try:
        return TABLE.recognise(place, DataSettings(dataset=str(place), clients=1)) is not None
    except DataError:
        return False


def _has_files(place: Path) -> bool:
    return place.is_dir() and any(place.iterdir())
