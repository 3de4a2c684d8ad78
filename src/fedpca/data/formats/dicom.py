"""CT slices in DICOM files, seen through the brain window. pydicom is an extra, imported with the first slice."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.errors import DataError

LEVEL, WIDTH = 40, 80  # of the brain window, in Hounsfield units
_AIR = -1100  # the least of it, with noise
_TAGS = [
    "Rows", "Columns", "BitsAllocated", "BitsStored", "PixelRepresentation", "SamplesPerPixel", "NumberOfFrames",
    "PhotometricInterpretation", "PlanarConfiguration", "RescaleSlope", "RescaleIntercept", "PixelData",
]  # fmt: skip


def require_pydicom(place: str) -> None:
    """Stops where DICOM files are to be read and nothing can read them."""
    if find_spec("pydicom") is None:
        raise DataError(f"{place} holds DICOM files, which need pydicom: pip install 'fedpca[medical]'")


def brain(path: Path) -> NDArray[np.uint8]:
    """A slice's pixels (H, W): black at LEVEL - WIDTH / 2 Hounsfield units and below, white at LEVEL + WIDTH / 2."""
    from pydicom import dcmread

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


def slice_size(path: Path) -> tuple[int, int]:
    """Width and height that a file's header gives; refuses a file that is too short for them."""
    from pydicom import dcmread

    with path.open("rb") as file:
        head = dcmread(file, stop_before_pixels=True, specific_tags=_TAGS)
        left = path.stat().st_size - file.tell() - (8 if head.original_encoding[0] else 12)  # the pixels' own header
    width, height = int(head.Columns), int(head.Rows)
    needed = width * height * int(head.BitsAllocated) // 8
    if left < needed and not head.file_meta.TransferSyntaxUID.is_compressed:
        raise ValueError(f"it breaks off: {width}x{height} pixels take {needed} bytes, but {max(left, 0)} are there")
    return width, height
