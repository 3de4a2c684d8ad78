"""Small folders in the layouts in which the paper's datasets are published."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

ISIC_TABLE = "ISIC_2019_Training_GroundTruth.csv"
ISIC_HEADER = "image,MEL,NV,BCC,AK,BKL,DF,VASC,SCC,UNK"
KINDS = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural", "any")


def encoded(kind: str, value: int | tuple[int, int, int] = 0, size: tuple[int, int] = (12, 8)) -> bytes:
    file = BytesIO()
    Image.new("L" if isinstance(value, int) else "RGB", size, value).save(file, kind)
    return file.getvalue()


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def isic_row(name: str, label: int) -> str:
    return ",".join([name, *("1.0" if number == label else "0.0" for number in range(9))])


def isic_folder(folder: Path, labels: list[int], inner: str = "ISIC_2019_Training_Input") -> Path:
    """An image for each label, of a brightness that tells its row; every fourth was made smaller, in name."""
    names = [f"ISIC_{row:07}{'_downsampled' if row % 4 == 3 else ''}" for row in range(len(labels))]
    rows = [isic_row(name, label) for name, label in zip(names, labels, strict=True)]
    write(folder / ISIC_TABLE, "\n".join([ISIC_HEADER, *rows, ""]))
    for row, name in enumerate(names):
        write(folder / inner / f"{name}.jpg", encoded("JPEG", (4 * row, 4 * row, 4 * row), (24, 16)))
    return folder


def rsna_rows(name: str, label: int) -> list[str]:
    return [f"{name}_{kind},{label if kind in ('any', 'subdural') else 0}" for kind in KINDS]


def rsna_name(row: int) -> str:
    return f"ID_{row:09x}"


def rsna_folder(folder: Path, labels: list[int], suffix: str = ".dcm", inner: str = "stage_2_train") -> Path:
    """An image for each label, of so many Hounsfield units as its row; one image's rows are there twice."""
    lines = ["ID,Label", *rsna_rows(rsna_name(0), labels[0])]
    for row, label in enumerate(labels):
        lines += rsna_rows(rsna_name(row), label)
        path = folder / inner / f"{rsna_name(row)}{suffix}"
        if suffix == ".dcm":
            write_slice(path, np.full((8, 8), row))
        else:
            write(path, encoded("PNG", row, (8, 8)))
    write(folder / "stage_2_train.csv", "\n".join([*lines, ""]))
    return folder


def write_slice(
    path: Path, units: np.ndarray, slope: float = 1, intercept: float = -1024, signed: bool = False, bits: int = 16
) -> Path:
    """A CT slice as scanners write it: stored = (units - intercept) / slope, in as many bits."""
    stored = np.rint((units - intercept) / slope).astype(np.int64) & ((1 << bits) - 1)
    slice_ = Dataset()
    slice_.file_meta = FileMetaDataset()
    slice_.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    slice_.file_meta.MediaStorageSOPClassUID = slice_.SOPClassUID = CTImageStorage
    slice_.file_meta.MediaStorageSOPInstanceUID = slice_.SOPInstanceUID = generate_uid()
    slice_.Modality, slice_.PatientID, slice_.PhotometricInterpretation = "CT", path.stem, "MONOCHROME2"
    slice_.Rows, slice_.Columns = units.shape
    slice_.SamplesPerPixel, slice_.BitsAllocated, slice_.BitsStored, slice_.HighBit = 1, 16, bits, bits - 1
    slice_.PixelRepresentation, slice_.RescaleSlope, slice_.RescaleIntercept = int(signed), slope, intercept
    slice_.WindowCenter, slice_.WindowWidth = 30, 100  # not what is used
    slice_.PixelData = stored.astype(np.uint16).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    slice_.save_as(path, enforce_file_format=True)
    return path
