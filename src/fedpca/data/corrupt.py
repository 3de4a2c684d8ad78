"""Worse copies of images, as by another camera or scanner: eleven corruptions of Hendrycks and Dietterich (ICLR 2019).

Deviation: impulse noise takes one random number a value, not two, so that the same numbers are drawn in any chunks.
"""

from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedpca.errors import DataError
from fedpca.settings.catalogue import Corruption

Bytes = NDArray[np.uint8]  # (N, C, H, W)
Floats = NDArray[np.float64]  # (N, C, H, W), in [0, 1]
Constant = float | tuple[float, ...]
Table = Literal["imagenet", "cifar"]

# The published constants of severity 1 to 5.
_CONSTANTS: dict[Table, dict[Corruption, tuple[Constant, ...]]] = {
    "imagenet": {
        "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),  # sigma
        "shot_noise": (60, 25, 12, 5, 3),  # photons of a white pixel
        "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),  # share of the values
        "speckle_noise": (0.15, 0.20, 0.35, 0.45, 0.60),  # sigma, in units of the value
        "gaussian_blur": (1, 2, 3, 4, 6),  # sigma, pixels
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),  # radius, and sigma of the disk's edge
        "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),  # added to the value of HSV
        "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),  # share that is kept
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),  # factor and summand of the saturation of HSV
        "jpeg": (25, 18, 15, 10, 7),  # quality
        "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),  # share of the side length
    },
    "cifar": {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": (500, 250, 100, 75, 50),
        "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
        "speckle_noise": (0.06, 0.10, 0.12, 0.16, 0.20),
        "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "brightness": (0.05, 0.10, 0.15, 0.20, 0.30),
        "contrast": (0.75, 0.50, 0.40, 0.30, 0.15),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        "jpeg": (80, 65, 58, 50, 40),
        "pixelate": (0.95, 0.90, 0.85, 0.75, 0.65),
    },
}

_CHUNK = 1 << 20  # values worked on at once: 7 colour images of 224x224, or 8 MB for each intermediate array


def constant(kind: Corruption, severity: int, table: Table) -> Constant:
    """What a severity from 1 to 5 means for one kind, in the published table for large or for 32x32 images."""
    if not 1 <= severity <= 5:
        raise DataError(f"the severity of {kind} must be 1 to 5, but is {severity}")
    return _CONSTANTS[table][kind][severity - 1]


def corrupt(
    images: Bytes, kind: Corruption, constant: Constant, rng: np.random.Generator, chunk: int = _CHUNK
) -> Bytes:
    """Corrupted copies of uint8 images (N, C, H, W), the same whatever `chunk` is: the values worked on at once."""
    _check(images, kind)
    constants = constant if isinstance(constant, tuple) else (constant,)
    at_once = max(1, chunk // max(1, images[0].size)) if len(images) else 1
    result = np.empty(images.shape, np.uint8)
    for start in range(0, len(images), at_once):
        part = slice(start, start + at_once)
        if kind in _ON_BYTES:
            result[part] = _ON_BYTES[kind](images[part], *constants)
        else:
            values = _ON_FLOATS[kind](images[part] / 255.0, rng, *constants)
            result[part] = values.clip(0, 1) * 255  # the published images are truncated, not rounded
    return result


def _check(images: Bytes, kind: Corruption) -> None:
    if images.ndim != 4 or images.dtype != np.uint8:
        raise DataError(f"images to corrupt must be uint8 (N, C, H, W), but are {images.dtype} {images.shape}")
    channels = images.shape[1]
    if kind == "saturate" and channels == 1:
        raise DataError("saturate needs colour images; these have 1 channel: choose another corruption")
    if channels not in (1, 3) and not kind.endswith("_noise"):
        raise DataError(
            f"{kind} needs images of 1 or 3 channels; these have {channels}: choose one of the noise corruptions"
        )


# Each draw below is one array in the images' order, so that chunks draw what the whole would.


def _gaussian_noise(x: Floats, rng: np.random.Generator, sigma: float) -> Floats:
    return x + sigma * rng.standard_normal(x.shape)


def _shot_noise(x: Floats, rng: np.random.Generator, photons: float) -> Floats:
    return rng.poisson(x * photons) / photons


def _impulse_noise(x: Floats, rng: np.random.Generator, amount: float) -> Floats:
    """White or black, as likely, in place of a share of the values."""
    chance = rng.random(x.shape)
    return np.where(chance < amount / 2, 0.0, np.where(chance < amount, 1.0, x))


def _speckle_noise(x: Floats, rng: np.random.Generator, sigma: float) -> Floats:
    return x + x * sigma * rng.standard_normal(x.shape)


def _gaussian_blur(x: Floats, rng: np.random.Generator, sigma: float) -> Floats:
    from scipy import ndimage

    blurred: Floats = ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest", truncate=4)
    return blurred


def _defocus_blur(x: Floats, rng: np.random.Generator, radius: float, edge: float) -> Floats:
    from scipy import ndimage

    blurred: Floats = ndimage.correlate(x, _disk(radius, edge)[None, None], mode="mirror")
    return blurred


@lru_cache
def _disk(radius: float, edge: float) -> Floats:
    """A disk of total weight 1 whose edge is softened by a Gaussian.

    Grid, size of the Gaussian and mirrored borders are the original's. Where the disk touches the grid's border, the
    softened weights do not quite add up to 1; that is the original's, too.
    """
    from scipy import ndimage

    reach, half = (8, 1) if radius <= 8 else (int(radius), 2)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    bell = np.exp(-(np.arange(-half, half + 1) ** 2) / (2 * edge**2))
    soft: Floats = disk / disk.sum()
    for axis in (0, 1):
        soft = ndimage.correlate1d(soft, bell / bell.sum(), axis, mode="mirror")
    return soft


def _brightness(x: Floats, rng: np.random.Generator, amount: float) -> Floats:
    """The value of HSV, which is the largest channel, raised; scaling all channels alike keeps hue and saturation."""
    value: Floats = x.max(axis=1, keepdims=True)
    brighter = (value + amount).clip(0, 1)
    return np.where(value > 0, x * brighter / np.where(value > 0, value, 1), brighter)


def _contrast(x: Floats, rng: np.random.Generator, kept: float) -> Floats:
    mean: Floats = x.mean(axis=(2, 3), keepdims=True)
    return (x - mean) * kept + mean


def _saturate(x: Floats, rng: np.random.Generator, factor: float, summand: float) -> Floats:
    """The saturation of HSV made factor * s + summand; hue and value stay.

    A channel of a pixel is value * (1 - s * place), with place in [0, 1] given by the hue alone. Grey has no hue and
    counts as red, as is the custom of HSV, so a summand tints it.
    """
    value: Floats = x.max(axis=1, keepdims=True)
    spread: Floats = value - x.min(axis=1, keepdims=True)
    red = np.array([0.0, 1.0, 1.0])[:, None, None]
    place = np.where(spread > 0, (value - x) / np.where(spread > 0, spread, 1), red)
    saturation: Floats = (factor * spread / np.where(value > 0, value, 1) + summand).clip(0, 1)
    return value * (1 - saturation * place)


def _jpeg(images: Bytes, quality: float) -> Bytes:
    return np.stack([_through_jpeg(image, int(quality)) for image in images])


def _through_jpeg(image: Bytes, quality: int) -> Bytes:
    file = BytesIO()
    _picture(image).save(file, "JPEG", quality=quality)
    return _pixels(Image.open(file))


def _pixelate(images: Bytes, share: float) -> Bytes:
    height, width = images.shape[2:]
    small = max(1, int(width * share)), max(1, int(height * share))
    box = Image.Resampling.BOX
    return np.stack([_pixels(_picture(image).resize(small, box).resize((width, height), box)) for image in images])


def _picture(image: Bytes) -> Image.Image:
    """PIL's form of one image (C, H, W) of 1 or 3 channels."""
    return Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))


def _pixels(picture: Image.Image) -> Bytes:
    """One image (C, H, W) back from PIL."""
    pixels = np.asarray(picture, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


_ON_FLOATS: dict[Corruption, Callable[..., Floats]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
    "speckle_noise": _speckle_noise,
    "gaussian_blur": _gaussian_blur,
    "defocus_blur": _defocus_blur,
    "brightness": _brightness,
    "contrast": _contrast,
    "saturate": _saturate,
}
_ON_BYTES: dict[Corruption, Callable[..., Bytes]] = {"jpeg": _jpeg, "pixelate": _pixelate}
