"""CT slices in DICOM files, seen through the brain window. pydicom is an extra, imported with the first slice."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.data.formats.bounds import require_pixels
from fedpca.errors import DataError

LEVEL, WIDTH = 40, 80  # of the brain window, in Hounsfield units
_AIR = -1100  # the least of it, with noise
_PACKED = 16  # bytes of a file for each pixel that it may have
_TAGS = [
    "Rows", "Columns", "BitsAllocated", "BitsStored", "PixelRepresentation", "SamplesPerPixel", "NumberOfFrames",
    "PhotometricInterpretation", "PlanarConfiguration", "RescaleSlope", "RescaleIntercept", "PixelData",
]  # fmt: skip


def require_pydicom(place: str) -> None:
    """Stops where DICOM files are to be read and nothing can read them."""
    if find_spec("pydicom") is None:
        raise DataError(f"{place} holds DICOM files, which need pydicom: pip install 'fedpca[medical]'")


def brain(path: Path, max_pixels: int) -> NDArray[np.uint8]:
    """A slice's pixels (H, W): black at LEVEL - WIDTH / 2 Hounsfield units and below, white at LEVEL + WIDTH / 2."""
    from pydicom import dcmread

    slice_size(path, max_pixels)
    slice_ = dcmread(path, specific_tags=_TAGS)
    stored: NDArray[np.integer] = slice_.pixel_array
    if stored.ndim != 2:
        raise ValueError(f"a slice must have one grey frame, but its pixels are of shape {stored.shape}")
    slope, intercept = float(slice_.RescaleSlope), float(slice_.RescaleIntercept)
    units = _unwrapped(stored, slice_.BitsStored, intercept) * np.float32(slope) + np.float32(intercept)
    shades = (units - (LEVEL - WIDTH / 2)) * (255 / WIDTH)
    grey: NDArray[np.uint8] = np.rint(np.clip(shades, 0, 255)).astype(np.uint8)
    return grey


def _unwrapped(stored: NDArray[np.integer], bits: int, intercept: float) -> NDArray[np.integer]:
    """Stored values, negative where they must have been.

    Some of RSNA's slices hold negative values as 12 bits without a sign and with next to no intercept: air, -1000, is
    3096 there. What would be about as dense as metal is taken for air.
    """
    if stored.dtype.kind != "u" or bits != 12 or intercept < -100:
        return stored
    signed = stored.astype(np.int32)
    return np.where(signed >= _AIR + 4096, signed - 4096, signed)


def slice_size(path: Path, max_pixels: int) -> tuple[int, int]:
    """Width and height that a file's header gives; refuses a file that is too short for them, and too many pixels."""
    from pydicom import dcmread

    _require_file(path, max_pixels)
    with path.open("rb") as file:
        head = dcmread(file, stop_before_pixels=True, specific_tags=_TAGS)
        left = path.stat().st_size - file.tell() - (8 if head.original_encoding[0] else 12)  # the pixels' own header
    width, height = int(head.Columns), int(head.Rows)
    require_pixels(width, height * int(head.get("NumberOfFrames") or 1), max_pixels)
    needed = width * height * int(head.BitsAllocated) // 8
    if left < needed and not head.file_meta.TransferSyntaxUID.is_compressed:
        raise ValueError(f"it breaks off: {width}x{height} pixels take {needed} bytes, but {max(left, 0)} are there")
    return width, height


def _require_file(path: Path, max_pixels: int) -> None:
    """Refuses what is packed as a whole, which would be unpacked before its header is known, and too long files."""
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file")
    if (count := path.stat().st_size) > _PACKED * max_pixels:
        raise ValueError(f"a file of {count} bytes holds more than data.max_pixels = {max_pixels} pixels")
    if read_file_meta_info(path).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
        raise ValueError("it is deflated as a whole: write it without that")
