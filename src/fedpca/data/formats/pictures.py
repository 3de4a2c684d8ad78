"""One picture, of whatever format, decoded to 8 bits per channel."""

from io import SEEK_END, BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedpca.data.formats.dicom import brain, slice_size
from fedpca.data.formats.source import Picture, Slice

Pixels = NDArray[np.uint8]  # (C, H, W)
Size = tuple[int, int]  # width, height
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
_LARGE = 512  # pixels of the shorter side from which on a JPEG is decoded at a part of its size, if that is enough
_TAIL = 65_536  # bytes in which a whole file's end mark is looked for
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}


class ColourError(Exception):
    """A colour picture among those that were taken to be grey."""


def pixels(size: int | None, channels: int, picture: Picture) -> Pixels | str:
    """A picture as (C, H, W), resized to a square if a size is given; or why it cannot be read."""
    try:
        image = _plain(_image(picture, size))
        array: NDArray[np.uint8] = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR) if size else image)
    except Exception as error:  # decoders meet broken files with errors of any kind, and one file must not end a run
        return _reason(error)
    if array.ndim == 3 and channels == 1:
        raise ColourError
    return array.transpose(2, 0, 1) if array.ndim == 3 else np.repeat(array[None], channels, axis=0)


def decoded_size(picture: Picture) -> Size | str:
    """A picture's size once it is decoded whole; or why it cannot be."""
    array = pixels(None, 3, picture)
    return array if isinstance(array, str) else (array.shape[2], array.shape[1])


def stated_size(picture: Picture) -> Size | str:
    """A picture's size by its header, without decoding; or why there is none, also where its end is cut off."""
    try:
        if isinstance(picture, Slice):
            return slice_size(picture.path)
        if picture is None or isinstance(picture, np.ndarray):
            return _image(picture, None).size
        with picture.open("rb") if isinstance(picture, Path) else BytesIO(picture) as file, Image.open(file) as image:
            size, end = image.size, _ENDS.get(image.format or "")
            file.seek(max(0, file.seek(0, SEEK_END) - _TAIL))
            return size if end is None or end in file.read() else "it breaks off before its end"
    except Exception as error:  # as above
        return _reason(error)


def _reason(error: Exception) -> str:
    """Why a picture cannot be read, in a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    if isinstance(error, FileNotFoundError):
        return f"there is no file {error.filename}"
    return f"{error}" or type(error).__name__


def _image(picture: Picture, size: int | None) -> Image.Image:
    """A picture, opened; a large JPEG at a half, a quarter or an eighth, but never below twice the wanted size."""
    if picture is None:
        raise ValueError("the row names no image")
    if isinstance(picture, Slice):
        return Image.fromarray(brain(picture.path))
    if isinstance(picture, np.ndarray):
        return Image.fromarray(picture)
    image = Image.open(BytesIO(picture.read_bytes() if isinstance(picture, Path) else picture))
    if size and min(image.size) >= _LARGE:
        image.draft(None, (2 * size, 2 * size))
    return image


def _plain(image: Image.Image) -> Image.Image:
    """The same picture with 8 bits per channel, grey (L) or colour (RGB), on white where it is transparent."""
    if image.mode[0] in "IF":
        return _eight_bits(image)
    transparent = image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
    if image.mode in ("L", "RGB") and not transparent:
        return image
    flat = _on_white(image.convert("RGBA")) if transparent else image.convert("RGB")
    grey = image.mode in ("1", "L", "LA", "La") or (image.mode[0] == "P" and _is_grey(flat))
    return flat.convert("L") if grey else flat


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits, or of floats in [0, 1], by a fixed scale: images stay comparable with each other."""
    values = np.asarray(image, dtype=np.float64)
    top = 1.0 if image.mode == "F" else 65535.0
    if not np.isfinite(values).all():
        raise ValueError("it holds NaN or infinite values")
    if values.min() < 0 or values.max() > top:
        raise ValueError(f"its values go from {values.min():g} to {values.max():g}, but 0 to {top:g} is allowed")
    return Image.fromarray(np.rint(values * (255 / top)).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _is_grey(image: Image.Image) -> bool:
    red, green, blue = (np.asarray(channel) for channel in image.split())
    return bool((red == green).all() and (green == blue).all())
