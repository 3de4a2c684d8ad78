"""What is there of a dataset, what is missing, and what cannot be read. Nothing is fetched, and nothing written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedpca.data.cache import PARTS, Progress, Undecoded, batches, opened
from fedpca.data.datasets import data_folder, digits, found, not_found, places, recognised, undecoded
from fedpca.data.formats.pictures import Size, decoded_size, stated_size
from fedpca.data.formats.source import Layout, Picture, Slice
from fedpca.data.known import KNOWN
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

_SHOWN = 5  # names in a message
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class Report:
    """What was found of a dataset; complete if there is no fault."""

    name: str
    place: Path | None = None  # none where it is nowhere, and for embedded data
    files: int = 0
    bytes: int = 0
    images: Mapping[str, int] = field(default_factory=dict)  # listed in each part
    classes: Mapping[str, int] = field(default_factory=dict)  # images of each, in both parts
    sizes: Mapping[Size, int] = field(default_factory=dict)  # images of each width and height
    decoded: Path | None = None  # entry of the cache
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Looked:
    """What looking at every picture gave."""

    sizes: Counter[Size]
    missing: list[str]  # names
    unreadable: list[str]  # names with reasons


def check(
    settings: DataSettings, data_dir: Path | None, cache_dir: Path | None, deep: bool, progress: Progress
) -> Report:
    """Looks at every file of a dataset: at the headers of images, or `deep`, by decoding each."""
    if settings.dataset == "digits":
        return _embedded()
    data, name = data_folder(data_dir), settings.dataset
    there = next((place for place in places(name, data) if place.exists() and place != data), None)
    if not there and name not in KNOWN:
        raise not_found(name, data)
    try:
        files = recognised(settings, data)
    except DataError as error:
        return Report(name, there, faults=(str(error),), notes=_archives(there))
    if files is None:
        return Report(name, there, faults=(_nowhere(name, there, data),), notes=_archives(there))
    return _report(settings, files[0], files[1], cache_dir, deep, progress)


def _report(
    settings: DataSettings, place: Path, layout: Layout, cache_dir: Path | None, deep: bool, progress: Progress
) -> Report:
    here = [path for path in layout.files if path.is_file()]
    report = Report(settings.dataset, place, len(here), sum(path.stat().st_size for path in here))
    try:
        data = undecoded(layout, settings)
        looked = _looked(data, deep, progress)
    except DataError as error:
        return replace(report, faults=(str(error),), notes=_archives(place))
    files = found(settings, layout, cache_dir)
    counts = np.bincount(np.concatenate(data.labels), minlength=len(data.classes)).tolist()
    total = sum(counts)
    return replace(
        report,
        images=dict(zip(PARTS, map(len, data.labels), strict=True)),
        classes=dict(zip(data.classes, counts, strict=True)),
        sizes=looked.sizes,
        decoded=files.entry if opened(files.entry, files.name) else None,
        faults=_counted(looked.missing, total, "missing", ", ")
        + _counted(looked.unreadable, total, "unreadable", "; "),
        notes=_notes(settings, layout, total, looked) + (_archives(place) if looked.missing else ()),
    )


def _embedded() -> Report:
    data = digits()
    labels = np.concatenate([data.train.labels, data.test.labels])
    return Report(
        "digits",
        images={"train": len(data.train.labels), "test": len(data.test.labels)},
        classes=dict(zip(data.classes, np.bincount(labels).tolist(), strict=True)),
        sizes={(8, 8): len(labels)},
        notes=("embedded in scikit-learn; there is nothing to fetch and nothing to decode",),
    )


def _nowhere(name: str, there: Path | None, data: Path) -> str:
    """The fault of a dataset of which nothing is recognised."""
    if there is None:
        return f"it is not there: looked in {', '.join(map(str, places(name, data)))}"
    if there.is_dir() and not any(there.iterdir()):
        return f"{there} is empty"
    return str(not_found(name, data))


def _looked(data: Undecoded, deep: bool, progress: Progress) -> _Looked:
    looked = _Looked(Counter(), [], [])
    total = sum(map(len, data.labels))
    for done, (name, seen) in enumerate(_seen(data, deep), 1):
        if seen is None:
            looked.missing.append(name)
        elif isinstance(seen, str):
            looked.unreadable.append(f"{name} ({seen})")
        else:
            looked.sizes[seen] += 1
        progress(done, total)
    return looked


def _seen(data: Undecoded, deep: bool) -> Iterator[tuple[str, Size | str | None]]:
    """Each picture's name with its size, or the reason why there is none; None where its file is missing."""
    size_of = decoded_size if deep else stated_size

    def look(picture: Picture) -> Size | str | None:
        path = picture.path if isinstance(picture, Slice) else picture
        return None if isinstance(path, Path) and not path.is_file() else size_of(picture)

    for source in data.sources:
        for batch in batches(source, look):
            yield from batch


def _counted(names: list[str], total: int, what: str, between: str) -> tuple[str, ...]:
    if not names:
        return ()
    rest = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    verb = "is" if len(names) == 1 else "are"
    return (f"{len(names):,} of {total:,} images {verb} {what}: {between.join(sorted(names)[:_SHOWN])}{rest}",)


def _notes(settings: DataSettings, layout: Layout, total: int, looked: _Looked) -> tuple[str, ...]:
    """What is no fault, but worth knowing."""
    known, notes = KNOWN.get(settings.dataset), [layout.note] if layout.note else []
    if known and total != known.images:
        notes.append(f"{total:,} images are listed; {settings.dataset} as published gives {known.images:,}")
    if len(looked.sizes) > 1 and not (settings.image_size or layout.size):
        notes.append("the images are of different sizes: set data.image_size")
    return tuple(notes)


def _archives(place: Path | None) -> tuple[str, ...]:
    """A word about archives that may not have been unpacked."""
    inside = sorted(path.name for path in place.iterdir()) if place and place.is_dir() else []
    packed = [name for name in inside if name.lower().endswith(_ARCHIVES)]
    return (f"{', '.join(packed)} in {place}: unpack it if that was not done",) if packed else ()


def states(data_dir: Path | None) -> Iterator[tuple[str, str, Path | None]]:
    """Name, state and place of every known dataset, then of the user's own folders; no file is read."""
    data = data_folder(data_dir)
    yield "digits", "embedded", None
    taken = set()
    for name in KNOWN:
        place = next((place for place in places(name, data) if place != data and _holds_something(place)), None)
        taken.add(place)
        yield name, "there" if place else "missing", place
    for place in sorted(data.iterdir()) if data.is_dir() else ():
        if place.is_dir() and place not in taken and not place.name.startswith(".") and _holds_something(place):
            yield place.name, "yours", place


def _holds_something(place: Path) -> bool:
    return place.is_dir() and any(place.iterdir())
