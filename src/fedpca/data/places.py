"""Where the files of a dataset are; those of a known one that is nowhere to be found are downloaded."""

import os
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from fedpca.data.folders import whole_folder
from fedpca.data.formats.recognise import KINDS, recognise
from fedpca.data.formats.source import Layout
from fedpca.data.known import KNOWN
from fedpca.errors import DataError, near
from fedpca.models.download import Progress, download, user_folder
from fedpca.settings.experiment import DataSettings

HUB = "https://huggingface.co/datasets"  # where known datasets are downloaded from
HUB_FILES = ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet")
SYSTEM = Path("/usr/share/datasets")  # where Debian's dataset packages install


def data_folder(given: Path | None) -> Path:
    """The folder of datasets."""
    return _folder(given, "FEDPCA_DATA", "data")


def cache_folder(given: Path | None) -> Path:
    """The folder of decoded images and of features."""
    return _folder(given, "FEDPCA_CACHE", "decoded")


def _folder(given: Path | None, variable: str, kind: str) -> Path:
    """The folder of the argument, else of the environment, else of the user's cache."""
    return given or Path(os.environ.get(variable) or user_folder(kind)).expanduser()


def find_layout(settings: DataSettings, data: Path, progress: Progress) -> Layout:
    """The files of a dataset; a known one that is nowhere to be found is downloaded."""
    if there := find_files(settings, data):
        return there[1]
    name, known = settings.dataset, KNOWN.get(settings.dataset)
    if not known or not known.hub:
        raise not_found(name, data)
    target = user_folder("data") / name
    _download(known.hub, target, places(name, data), progress)
    if layout := recognise(target, settings):
        return layout
    raise DataError(f"{target} holds something else than {name}: remove that folder, so that it can be downloaded")


def find_files(settings: DataSettings, data: Path) -> tuple[Path, Layout] | None:
    """Where a dataset is, and its layout; None if it is nowhere. Nothing is fetched."""
    known = KNOWN.get(settings.dataset)
    for place in places(settings.dataset, data):
        if layout := recognise(place, settings, known.format if known else None):
            if known and known.has_test and not layout.has_test:
                raise DataError(f"{place}: the test part of {settings.dataset} is missing; there must be {known.needs}")
            return place, layout
    return None


def places(name: str, data: Path) -> list[Path]:
    """Where a dataset may be, in the order in which it is looked for."""
    known = KNOWN.get(name)
    if not known:
        return [data / name, Path(name).expanduser()]
    anywhere = [data] if known.format else []  # a table of its own gives it away
    others = [SYSTEM / name, user_folder("data") / name] if known.hub else [Path(name)]
    return list(dict.fromkeys([*(data / folder for folder in known.folders), *anywhere, *others]))


def not_found(name: str, data: Path) -> DataError:
    """What to tell where nothing of a dataset is recognised."""
    known, looked_in = KNOWN.get(name), places(name, data)
    there = next((place for place in looked_in if place.exists() and place != data), None)
    if there:
        inside = sorted(path.name for path in there.iterdir()) if there.is_dir() else [f"a file {there.suffix}"]
        held, needs = ", ".join(inside[:8]) or "nothing", known.needs if known else KINDS
        return DataError(f"{there} holds no images in a known layout: there must be {needs}, got {held}")
    if known:
        listed = ", ".join(map(str, looked_in))
        return DataError(
            f"{name} is not there; looked in {listed}. `fedpca data check {name}` tells where to get it; "
            "--data-dir or FEDPCA_DATA is the folder that it belongs into"
        )
    own = sorted(path.name for path in data.iterdir() if path.is_dir()) if data.is_dir() else []
    names = [*KNOWN, *own]
    close = near(name, names)
    hint = f"did you mean {close!r}? " if close else ""
    looked = " and ".join(str(place) for place in dict.fromkeys(looked_in))
    return DataError(
        f"there is no dataset {name!r}: {hint}There are {', '.join(names)}; looked for {looked}. "
        "Set data.dataset to one of these or to a path, or the data folder with --data-dir or FEDPCA_DATA"
    )


def _download(hub: str, target: Path, looked_in: Sequence[Path], progress: Progress) -> None:
    """Fetches a dataset's train and test file into a new folder: both or neither."""
    try:
        with whole_folder(target) as folder:
            for name in HUB_FILES:
                download(f"{HUB}/{hub}/{name}", folder / name, _require_parquet, progress)
    except (OSError, HTTPException, ValueError) as error:
        looked = ", ".join(str(place) for place in looked_in)
        raise DataError(
            f"{target.name} was not found in {looked}, and downloading it from {HUB}/{hub} failed: {error}. "
            f"Put {' and '.join(HUB_FILES)} into {looked_in[0]}, or point --data-dir or FEDPCA_DATA to the folder "
            f"that holds {target.name}"
        ) from None


def _require_parquet(path: Path) -> None:
    """Refuses a file that is something else, such as a login page."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(-min(4, path.stat().st_size), os.SEEK_END)
        if (start, file.read()) != (b"PAR1", b"PAR1"):
            raise OSError("got something else than a parquet file")
