"""One picture, of whatever format, decoded to 8 bits per channel."""

import warnings
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedpca.data.formats.bounds import require_pixels
from fedpca.data.formats.dicom import brain, slice_size
from fedpca.data.formats.source import Picture, Slice
from fedpca.settings.experiment import PILLOW_PIXELS, DataSettings

Pixels = NDArray[np.uint8]  # (C, H, W)
Size = tuple[int, int]  # width, height
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
# what Pillow may take a file for: it knows more, such as PostScript, which it would hand to Ghostscript to run
FORMATS = ("PNG", "JPEG", "BMP", "DIB", "WEBP", "TIFF", "GIF", "PPM", "JPEG2000")
_LARGE = 512  # pixels of the shorter side from which on a JPEG is decoded at a part of its size, if that is enough
_TAIL = 65_536  # bytes in which a whole file's end mark is looked for
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
_PACKED = 16  # bytes of a file for each pixel that it may have: no format needs more
warnings.filterwarnings("ignore", module=r"PIL\.|pydicom\.")  # they quote the file: what is wrong is in our messages
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)  # of frames and thumbnails inside a file too


class Decoding(NamedTuple):
    """How pictures are decoded."""

    size: int | None = None  # side of the square that they are resized to
    max_pixels: int = DataSettings.model_fields["max_pixels"].default


class ColourError(Exception):
    """A colour picture among those that were taken to be grey."""


def pixels(decoding: Decoding, channels: int, picture: Picture) -> Pixels | str:
    """A picture as (C, H, W), resized to a square if a size is given; or why it cannot be read."""
    size = decoding.size
    try:
        image = _plain(_image(picture, decoding))
        array: NDArray[np.uint8] = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR) if size else image)
    except Exception as error:  # decoders meet broken files with errors of any kind, and one file must not end a run
        return _reason(error)
    if array.ndim == 3 and channels == 1:
        raise ColourError
    return array.transpose(2, 0, 1) if array.ndim == 3 else np.repeat(array[None], channels, axis=0)


def decoded_size(max_pixels: int, picture: Picture) -> Size | str:
    """A picture's size once it is decoded whole; or why it cannot be."""
    array = pixels(Decoding(None, max_pixels), 3, picture)
    return array if isinstance(array, str) else (array.shape[2], array.shape[1])


def stated_size(max_pixels: int, picture: Picture) -> Size | str:
    """A picture's size by its header, without decoding; or why there is none, also where its end is cut off."""
    try:
        if isinstance(picture, Slice):
            return slice_size(picture.path, max_pixels)
        if picture is None or isinstance(picture, np.ndarray):
            return _image(picture, Decoding(None, max_pixels)).size
        with _file(picture, max_pixels) as file, _opened(file, max_pixels) as image:
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


def _image(picture: Picture, decoding: Decoding) -> Image.Image:
    """A picture, opened; a large JPEG at a half, a quarter or an eighth, but never below twice the wanted size."""
    if picture is None:
        raise ValueError("the row names no image")
    if isinstance(picture, Slice):
        return Image.fromarray(brain(picture.path, decoding.max_pixels))
    if isinstance(picture, np.ndarray):
        return Image.fromarray(picture)
    with _file(picture, decoding.max_pixels) as file:
        image = _opened(BytesIO(file.read()), decoding.max_pixels)
    if decoding.size and min(image.size) >= _LARGE:
        image.draft(None, (2 * decoding.size, 2 * decoding.size))
    return image


def _file(picture: bytes | Path, max_pixels: int) -> IO[bytes]:
    """A picture's bytes, in a file or not; a device, a pipe and a file that is too long are refused."""
    if isinstance(picture, bytes):
        return BytesIO(picture)
    if picture.exists() and not picture.is_file():
        raise ValueError(f"{picture} is no file")
    if (count := picture.stat().st_size) > _PACKED * max_pixels:
        raise ValueError(f"a file of {count} bytes holds more than data.max_pixels = {max_pixels} pixels")
    return picture.open("rb")


def _opened(file: IO[bytes], max_pixels: int) -> Image.Image:
    """An image of which the header is read; too large ones are refused."""
    try:
        image = Image.open(file, formats=FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        most = f"data.max_pixels can be {PILLOW_PIXELS} at most"
        raise ValueError(f"it has too many pixels to be decoded, {most}: make it smaller") from None
    require_pixels(*image.size, max_pixels)
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
