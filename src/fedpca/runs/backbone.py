"""Images gone once through a frozen pretrained network: clients train on its features, kept from then on."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from fedpca.core import Images, Net, Shard
from fedpca.data.federation import Federation
from fedpca.data.folders import discard, whole_folder
from fedpca.data.noise_kind import Look
from fedpca.data.places import cache_folder
from fedpca.errors import DataError
from fedpca.models.build import build
from fedpca.models.download import Progress
from fedpca.models.pretrained import imagenet
from fedpca.settings.experiment import ModelSettings
from fedpca.simulate.workers import Workers

FORMAT = 1  # of an entry; counted up when the same images would be given other features
BATCH = 8  # images per pass; more of them at this size leave the cache, and take longer each
# Lite0's features of CT slices have a mean squared length of 250 at 224x224 and of 1000 at 128x128. The curvature of
# cross-entropy is at most half of that, and SGD with the default lr 0.03 and momentum 0.9 may overshoot above
# 2 (1 + 0.9) / 0.03 = 127: half the features stay below. A constant: nobody's images show in anybody's features;
# the channels' deviations on ImageNet, as the last batch norm has them, are nearly equal; to use them gained nothing.
SCALE = 0.5
CLASSES = 1000  # of ImageNet


def with_features(
    federation: Federation,
    model: ModelSettings,
    device: str = "cpu",
    progress: Progress | None = None,
    cache_dir: Path | None = None,
) -> Federation:
    """The same federation with features (d, 1, 1) in place of images, those of its tests too; itself if not asked for.

    Each client's are an entry of the cache, under a fingerprint of its images: where only labels or other clients
    change, they are there already.
    """
    if model.backbone is None:
        return federation
    shards = [*federation.shards.values(), *federation.tests.values()]
    features = _features_of([shard.x for shard in shards], model, device, progress, cache_dir)
    shown = [Shard(x, shard.y) for x, shard in zip(features, shards, strict=True)]
    return replace(
        federation,
        shards=dict(zip(federation.shards, shown, strict=False)),
        tests=dict(zip(federation.tests, shown[len(federation.shards) :], strict=True)),
        shape=(features[0].shape[1], 1, 1),
    )


def look_through(
    model: ModelSettings, device: str = "cpu", progress: Progress | None = None, cache_dir: Path | None = None
) -> Look | None:
    """What gives features (N, d, 1, 1) for images; None without a backbone."""

    def look(images: NDArray[np.generic]) -> NDArray[np.generic]:
        (features,) = _features_of([torch.from_numpy(np.array(images))], model, device, progress, cache_dir)
        return features.numpy()

    return look if model.backbone else None


def _features_of(
    sets: Sequence[Images], model: ModelSettings, device: str, progress: Progress | None, cache_dir: Path | None
) -> list[Tensor]:
    """Features (N, d, 1, 1) of each of several sets of images, out of the cache, into which they go if need be."""
    direct = "" if model.winograd else "-direct"  # other convolutions, other rounding
    folder = cache_folder(cache_dir) / f"features-{FORMAT}-{model.backbone}-{model.backbone_size}{direct}"
    entries = [folder / fingerprint(images) for images in sets]
    missing = {entry: images for entry, images in zip(entries, sets, strict=True) if open_entry(entry) is None}
    if missing:
        _make(missing, model, device, progress or (lambda done, total: None))
    return [_read(entry) for entry in entries]


def fingerprint(images: Images) -> str:
    """A name for these very images in this order."""
    digest = blake2b(digest_size=16)
    for rows in torch.split(torch.arange(len(images)), 256):
        batch = images[rows].contiguous()
        digest.update(repr((batch.dtype, batch.shape)).encode())
        digest.update(batch.numpy().data)
    return digest.hexdigest()


def open_entry(entry: Path) -> Tensor | None:
    """The features (N, d, 1, 1) in an entry of the cache, memory-mapped; None if it is missing or damaged."""
    try:
        return torch.from_numpy(np.load(entry / "features.npy", mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError):
        return None


def _read(entry: Path) -> Tensor:
    if (features := open_entry(entry)) is None:
        raise DataError(f"{entry} was damaged while it was written: remove it and start again")
    return features


def _make(missing: Mapping[Path, Images], model: ModelSettings, device: str, progress: Progress) -> None:
    """Fills entries of the cache; each batch is worked on by one thread, so that their number changes nothing."""
    pool = Workers(_backbones(model, next(iter(missing.values())), device, progress))
    done, total = 0, sum(map(len, missing.values()))
    try:
        for entry, images in missing.items():
            parts = list[Tensor]()
            features = partial(_features, images, model.backbone_size)
            for part in pool.map(features, torch.split(torch.arange(len(images)), BATCH)):
                parts.append(part)
                done += len(part)
                progress(done, total)
            _save(entry, torch.cat(parts))
    finally:
        pool.close()


def _backbones(model: ModelSettings, images: Images, device: str, progress: Progress) -> list[Net]:
    """The pretrained network, once for each core; once on another device than the CPU."""
    assert model.backbone, "see `with_features`"
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    weights = imagenet(model.backbone, progress)
    shape = (images[torch.arange(1)].shape[1], model.backbone_size, model.backbone_size)
    place = (shape, CLASSES, 0, weights, device, model.winograd)
    return [build(model.backbone, *place) for _ in range(count if device == "cpu" else 1)]


@torch.inference_mode()
def _features(images: Images, size: int, net: Net, rows: Tensor) -> Tensor:
    """Features (n, d, 1, 1) of some images, which are stretched to the square that the network takes."""
    pixels = net.scale(images[rows])
    square = interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    features, _ = net.features(square)
    return features.cpu().flatten(1)[:, :, None, None] * SCALE


def _save(entry: Path, features: Tensor) -> None:
    try:
        discard(entry)
        with whole_folder(entry) as folder:
            np.save(folder / "features.npy", features.numpy())
    except OSError as error:
        remedy = "make room there, or set FEDPCA_CACHE to another folder"
        raise DataError(f"features cannot be written to {entry.parent}: {error}; {remedy}") from None
