"""Worse copies of images, as by another camera or scanner: eleven corruptions of Hendrycks and Dietterich (ICLR 2019).

One of your own is a function under `@corruption(...)` that `rare.corruption = "package.module:name"` names, or an
entry point of the group `fedpca.corruptions`.

Deviation: impulse noise takes one random number a value, not two, so that the same numbers are drawn in any chunks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedpca.errors import DataError, SettingsError
from fedpca.settings.experiment import RareSettings
from fedpca.settings.registry import Registry

Bytes = NDArray[np.uint8]  # (N, C, H, W)
Floats = NDArray[np.float64]  # (N, C, H, W), in [0, 1]
Constant = float | tuple[float, ...]
Apply = Callable[..., NDArray[Any]]

_CHUNK = 1 << 20  # values worked on at once: 7 colour images of 224x224, or 8 MB for each intermediate array


@dataclass(frozen=True)
class Corruption:
    """A way to make images worse, with the constants that a severity stands for.

    >>> from fedpca import Corruption
    >>> flip = Corruption("flip", "upside down", lambda x, rng, _: x[:, :, ::-1], {"imagenet": (1.0,)})
    >>> flip.constant(severity=1, table="imagenet")
    1.0
    """

    name: str
    summary: str
    apply: Apply  # of images (N, C, H, W), a generator and the constants
    severities: Mapping[str, Sequence[Constant]]  # by `rare.table`: the constants of severity 1, 2, …
    takes_sigma: bool = False  # `rare.sigma` may stand in place of its constant
    on_bytes: bool = False  # `apply` works on uint8; else on floats from 0 to 1, which are clipped to that
    channels: tuple[int, ...] = (1, 3)  # that images may have; (): any number

    def constant(self, severity: int, table: str) -> Constant:
        """What a severity means in one of the published tables."""
        if table not in self.severities:
            raise SettingsError(f"rare.table of {self.name} must be {' or '.join(self.severities)}, got {table}")
        steps = self.severities[table]
        if not 1 <= severity <= len(steps):
            raise SettingsError(f"rare.severity of {self.name} must be 1 to {len(steps)}, got {severity}")
        return steps[severity - 1]


def corruption(
    takes_sigma: bool = False,
    on_bytes: bool = False,
    channels: tuple[int, ...] = (1, 3),
    **severities: Sequence[Constant],
) -> Callable[[Apply], Corruption]:
    """Makes a function a corruption of its name; `severities` by table, such as imagenet=(0.1, 0.2, 0.3, 0.4, 0.5).

    >>> from fedpca import corruption
    >>> @corruption(imagenet=(0.9, 0.6, 0.3))
    ... def darker(x, rng, factor):
    ...     '''Less light.'''
    ...     return x * factor
    >>> darker.name, darker.summary
    ('darker', 'Less light')
    """

    def define(apply: Apply) -> Corruption:
        summary = (apply.__doc__ or "").partition("\n")[0].rstrip(".")
        return Corruption(apply.__name__, summary, apply, severities, takes_sigma, on_bytes, channels)

    return define


def corrupt(
    images: Bytes, corruption: Corruption, constant: Constant, rng: np.random.Generator, chunk: int = _CHUNK
) -> Bytes:
    """Corrupted copies of uint8 images (N, C, H, W), the same whatever `chunk` is: the values worked on at once."""
    _check_images(images, corruption)
    constants = constant if isinstance(constant, tuple) else (constant,)
    count = max(1, chunk // max(1, images[0].size)) if len(images) else 1
    result = np.empty(images.shape, np.uint8)
    for start in range(0, len(images), count):
        part = slice(start, start + count)
        if corruption.on_bytes:
            result[part] = corruption.apply(images[part], rng, *constants)
        else:
            values = corruption.apply(images[part] / 255.0, rng, *constants)
            result[part] = values.clip(0, 1) * 255  # the published images are truncated, not rounded
    return result


def check_corruption(rare: RareSettings) -> None:
    """Refuses an unknown corruption, and constants that it does not have."""
    try:
        corruption = CORRUPTIONS[rare.corruption]
    except SettingsError as error:
        raise SettingsError(f"rare.corruption: {error}") from None
    if rare.sigma is None:
        corruption.constant(rare.severity, rare.table)
    elif not corruption.takes_sigma:
        takers = ", ".join(name for name, own in CORRUPTIONS.own.items() if own.takes_sigma)
        raise SettingsError(f"rare.sigma is for {takers}; {rare.corruption} takes rare.severity")


def _check_images(images: Bytes, corruption: Corruption) -> None:
    if images.ndim != 4 or images.dtype != np.uint8:
        raise DataError(f"images to corrupt must be uint8 (N, C, H, W), got {images.dtype} {images.shape}")
    if corruption.channels and images.shape[1] not in corruption.channels:
        needed = " or ".join(map(str, corruption.channels))
        raise DataError(
            f"rare.corruption: {corruption.name} needs images of {needed} channels, got {images.shape[1]}: "
            "choose another corruption"
        )


# Each draw below is one array in the images' order, so that chunks draw what the whole would.


@corruption(
    takes_sigma=True, channels=(), imagenet=(0.08, 0.12, 0.18, 0.26, 0.38), cifar=(0.04, 0.06, 0.08, 0.09, 0.10)
)
def gaussian_noise(x: Floats, rng: np.random.Generator, sigma: float) -> Floats:
    """Noise of the same spread everywhere."""
    return x + sigma * rng.standard_normal(x.shape)


@corruption(channels=(), imagenet=(60, 25, 12, 5, 3), cifar=(500, 250, 100, 75, 50))
def shot_noise(x: Floats, rng: np.random.Generator, photons: float) -> Floats:
    """Noise of counted photons: so many of a white pixel."""
    return rng.poisson(x * photons) / photons


@corruption(channels=(), imagenet=(0.03, 0.06, 0.09, 0.17, 0.27), cifar=(0.01, 0.02, 0.03, 0.05, 0.07))
def impulse_noise(x: Floats, rng: np.random.Generator, amount: float) -> Floats:
    """White or black, as likely, in place of a share of the values."""
    chance = rng.random(x.shape)
    return np.where(chance < amount / 2, 0.0, np.where(chance < amount, 1.0, x))


@corruption(
    takes_sigma=True, channels=(), imagenet=(0.15, 0.20, 0.35, 0.45, 0.60), cifar=(0.06, 0.10, 0.12, 0.16, 0.20)
)
def speckle_noise(x: Floats, rng: np.random.Generator, sigma: float) -> Floats:
    """Noise that grows with the value."""
    return x + x * sigma * rng.standard_normal(x.shape)


@corruption(takes_sigma=True, imagenet=(1, 2, 3, 4, 6), cifar=(0.4, 0.6, 0.7, 0.8, 1))
def gaussian_blur(x: Floats, rng: np.random.Generator, sigma: float) -> Floats:
    """Blur by a bell; sigma in pixels."""
    from scipy import ndimage

    blurred: Floats = ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest", truncate=4)
    return blurred


@corruption(
    imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
)
def defocus_blur(x: Floats, rng: np.random.Generator, radius: float, edge: float) -> Floats:
    """Blur by a disk with a soft edge, as of a lens out of focus."""
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


@corruption(imagenet=(0.1, 0.2, 0.3, 0.4, 0.5), cifar=(0.05, 0.10, 0.15, 0.20, 0.30))
def brightness(x: Floats, rng: np.random.Generator, amount: float) -> Floats:
    """Brighter: the value of HSV raised.

    It is the largest channel; to scale all channels alike keeps hue and saturation.
    """
    value: Floats = x.max(axis=1, keepdims=True)
    brighter = (value + amount).clip(0, 1)
    return np.where(value > 0, x * brighter / np.where(value > 0, value, 1), brighter)


@corruption(imagenet=(0.4, 0.3, 0.2, 0.1, 0.05), cifar=(0.75, 0.50, 0.40, 0.30, 0.15))
def contrast(x: Floats, rng: np.random.Generator, kept: float) -> Floats:
    """Values nearer to the mean of their channel."""
    mean: Floats = x.mean(axis=(2, 3), keepdims=True)
    return (x - mean) * kept + mean


@corruption(
    channels=(3,),
    imagenet=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    cifar=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
)
def saturate(x: Floats, rng: np.random.Generator, factor: float, summand: float) -> Floats:
    """Paler or stronger colours: the saturation of HSV made factor * s + summand; hue and value stay.

    A channel of a pixel is value * (1 - s * place), with place in [0, 1] given by the hue alone. Grey has no hue and
    counts as red, as is the custom of HSV, so a summand tints it.
    """
    value: Floats = x.max(axis=1, keepdims=True)
    spread: Floats = value - x.min(axis=1, keepdims=True)
    red = np.array([0.0, 1.0, 1.0])[:, None, None]
    place = np.where(spread > 0, (value - x) / np.where(spread > 0, spread, 1), red)
    saturation: Floats = (factor * spread / np.where(value > 0, value, 1) + summand).clip(0, 1)
    return value * (1 - saturation * place)


@corruption(on_bytes=True, imagenet=(25, 18, 15, 10, 7), cifar=(80, 65, 58, 50, 40))
def jpeg(images: Bytes, rng: np.random.Generator, quality: float) -> Bytes:
    """Compressed as JPEG of this quality."""
    return np.stack([_through_jpeg(image, int(quality)) for image in images])


def _through_jpeg(image: Bytes, quality: int) -> Bytes:
    file = BytesIO()
    _picture(image).save(file, "JPEG", quality=quality)
    return _pixels(Image.open(file))


@corruption(on_bytes=True, imagenet=(0.6, 0.5, 0.4, 0.3, 0.25), cifar=(0.95, 0.90, 0.85, 0.75, 0.65))
def pixelate(images: Bytes, rng: np.random.Generator, share: float) -> Bytes:
    """Fewer, larger pixels: a share of the side length."""
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


PUBLISHED = (
    gaussian_noise, shot_noise, impulse_noise, speckle_noise, gaussian_blur, defocus_blur, brightness, contrast,
    saturate, jpeg, pixelate,
)  # fmt: skip
CORRUPTIONS = Registry("corruption", Corruption, {own.name: own for own in PUBLISHED}, group="fedpca.corruptions")
