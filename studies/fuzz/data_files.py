"""Data files of every layout with something wrong in them: broken bytes, false heads, bombs, names that do harm."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from fedpca.data.check import check
from fedpca.data.datasets import load
from fedpca.data.federation import federate
from fedpca.errors import CONTROL, DataError, SettingsError
from fedpca.runs.check import check_experiment
from fedpca.settings.experiment import DataSettings
from studies.fuzz.cases import Door, Target, require_plain_message
from studies.fuzz.nonsense import damaged, number, text

ROWS = 12
MAX_BYTES, MAX_PIXELS = 2_000_000, 10_000  # of the settings that all files are read with
BOMB = 30_000_000  # bytes that some small files unpack to
Write = Callable[[Random, Path], None]  # a dataset into an empty folder

PILLOW = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM", "JPEG2000", "ICO", "TGA")


@cache
def picture(kind: str, row: int, mode: str = "L") -> bytes:
    """A small picture."""
    file, values = BytesIO(), np.random.default_rng(row).integers(0, 255, (8, 8), np.uint8)
    Image.fromarray(values).convert(mode).save(file, kind)
    return file.getvalue()


def odd_picture(rng: Random) -> bytes:
    """A picture, whole or broken, or with a head that claims too much."""
    kind, mode = rng.choice(PILLOW), rng.choice(("L", "L", "RGB"))
    whole = picture(kind, rng.randrange(4), mode)
    match rng.randrange(8):
        case 0:
            return whole
        case 1:
            return huge_png(rng)
        case 2:
            return rng.choice((b"", b"\0" * 100, rng.randbytes(200), b"%!PS-Adobe-3.0 EPSF-3.0\n(x) run", b"GIF89a"))
        case _:
            return damaged(rng, whole)


def huge_png(rng: Random) -> bytes:
    """A PNG whose head claims any size, with data for all of it, or for a part."""
    width, height = rng.choice(((50_000, 50_000), (2**31 - 1, 2**31 - 1), (0, 0), (1, 10_001), (5000, 5000)))
    data = zlib.compress(b"\0" * min(BOMB, (width + 1) * height), 1)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", data), (b"IEND", b""))
    chunks = (
        len(own).to_bytes(4, "big") + kind + own + zlib.crc32(kind + own).to_bytes(4, "big") for kind, own in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


# Layouts


def known(words: str) -> str:
    """The text without what UTF-8 has not."""
    return words.encode("utf-8", "replace").decode()


def npz(rng: Random, place: Path) -> None:
    """Arrays in one file."""
    shape = rng.choice(((ROWS, 8, 8), (ROWS, 8, 8, 3), (ROWS, 5), (ROWS,), (0, 8, 8), (ROWS, 0, 8), (ROWS, 2, 2, 2, 2)))
    values = np.random.default_rng(rng.randrange(99)).random(shape)
    kind = rng.choice(("uint8", "uint8", "float32", "float64", "int64", "bool", "complex64", "float16", "U3", "object"))
    with np.errstate(all="ignore"):
        images = (values * rng.choice((1, 1, 9, 255))).astype(kind)
        if images.size and kind.startswith("float") and rng.random() < 0.4:
            images.flat[0] = float(number(rng)) if rng.random() < 0.5 else np.nan
    labels = np.array(
        [odd_label(rng, row) for row in range(rng.choice((ROWS, ROWS, ROWS, 3)))], rng.choice((None, object))
    )
    names = rng.choice(
        (("x", "y"), ("x", "y"), ("x_train", "y_train"), ("images", "labels"), ("a", "b"), (known(text(rng)[:50]), "y"))
    )
    file = BytesIO()
    np.savez(file, **{names[0]: images, names[1]: labels})  # type: ignore[arg-type]
    content = file.getvalue()
    if rng.random() < 0.3:
        content = zipped(rng, {"x.npy": head(rng) + b"\0" * 64, "y.npy": npy(labels)})
    (place / "own.npz").write_bytes(damaged(rng, content) if rng.random() < 0.4 else content)


def zipped(rng: Random, files: dict[str, bytes]) -> bytes:
    """A zip file, in which some entries unpack to far more than they take."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2))) as own:
        for name, content in files.items():
            own.writestr(name, content + b"\0" * (BOMB // 3 if rng.random() < 0.1 else 0))
        if rng.random() < 0.3:
            own.writestr(rng.choice(("../../x", "/x", "x.npy/", "x\x1b")), b"x")
    return file.getvalue()


def npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    """An array in NumPy's format."""
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def head(rng: Random) -> bytes:
    """The head of an array, of any shape and type."""
    shape = rng.choice(
        (f"({10**12}, 8, 8)", "(-1, 8, 8)", "(12, 8, 8)", "()", "(" * 200, "(1e3,)", "('a',)", f"({'9' * 5000},)")
    )
    kind = rng.choice(
        ("'|u1'", "'<f8'", "'|O'", "'|V0'", "'<U9999999'", "[('a','<f4')]", "3", "'" + "x" * 70_000 + "'")
    )
    written = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    version = rng.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    return (
        b"\x93NUMPY"
        + version
        + len(written).to_bytes(2 if version == b"\x01\x00" else 4, "little", signed=False)[:4]
        + written
        if (len(written) < 65_536)
        else b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + written
    )


def odd_label(rng: Random, row: int) -> object:
    """A label, mostly a right one."""
    return row % 2 if rng.random() < 0.98 else rng.choice((-1, 10**6, "a", 0.5, True, 2**63 - 1, text(rng)[:200]))


def csv(rng: Random, place: Path) -> None:
    """A table of numbers, or of images that are files."""
    lines = ["age,sex,site,label", *(f"{row},{'fm'[row % 2]},{'ab'[row // 2 % 2]},{row % 2}" for row in range(ROWS))]
    if rng.random() < 0.4:
        lines = ["image,site,label", *(f"{row}.png,{'ab'[row % 2]},{row % 2}" for row in range(ROWS))]
        for row in range(ROWS):
            (place / f"{row}.png").write_bytes(odd_picture(rng) if rng.random() < 0.1 else picture("PNG", row))
    for _ in range(rng.choice((0, 1, 1, 2, 6))):
        line = rng.randrange(len(lines))
        cells = lines[line].split(",")
        cells[rng.randrange(len(cells))] = rng.choice(
            (text(rng), str(number(rng) if rng.random() < 0.7 else 2**70), '"', "", ",,,")
        )
        lines[line] = ",".join(cells)
    if rng.random() < 0.05:
        lines += [lines[1]] * 50_000
    content = (
        rng.choice(("\n", "\n", "\r\n", "\r"))
        .join(lines)
        .encode(rng.choice(("utf-8", "utf-8", "utf-8", "utf-16")), "replace")
    )
    name = rng.choice(("own.csv", "own.csv", "train.csv"))
    (place / name).write_bytes(damaged(rng, content) if rng.random() < 0.2 else content)
    if rng.random() < 0.2:
        (place / "test.csv").write_bytes(damaged(rng, content) if rng.random() < 0.5 else content)


def parquet(rng: Random, place: Path) -> None:
    """Rows with encoded images, or of numbers."""
    labels = [row % 2 for row in range(ROWS)]
    table: dict[str, object] = {
        "label": labels if rng.random() < 0.7 else [str(odd_label(rng, row)) for row in range(ROWS)]
    }
    bad = rng.random() < 0.5
    if rng.random() < 0.6:
        cells = [odd_picture(rng) if bad and rng.random() < 0.2 else picture("PNG", row) for row in range(ROWS)]
        paths = [known(text(rng)) for _ in cells]
        table["image"] = (
            cells if rng.random() < 0.3 else [{"bytes": own, "path": at} for own, at in zip(cells, paths, strict=True)]
        )
    else:
        table |= {"age": [float(row) for row in range(ROWS)], "x\x1b\n": [row % 3 for row in range(ROWS)]}
        table["age"] = [
            rng.choice((None, float("nan"), 1e308, float(row))) if bad else float(row) for row in range(ROWS)
        ]
        if rng.random() < 0.1:
            table["dates"] = pa.array(
                [number % 2**40 for number in range(ROWS)], rng.choice((pa.date32(), pa.timestamp("s")))
            )
    made = pa.table(table)
    notes = rng.choice(("", "[" * 5000, "null", '{"info": {"features": {"label": {"names": ["a\\n", "b"]}}}}', "{"))
    if rng.random() < 0.05:
        made = pa.concat_tables([made] * 4000)
    file = BytesIO()
    pq.write_table(made.replace_schema_metadata({"huggingface": notes}) if notes else made, file)
    content = file.getvalue()
    (
        place
        / rng.choice(
            ("own.parquet", "train.parquet", "train-00000-of-00002.parquet" if rng.random() < 0.3 else "own.parquet")
        )
    ).write_bytes(damaged(rng, content) if rng.random() < 0.5 else content)


def folder(rng: Random, place: Path) -> None:
    """A folder for each class, with picture files."""
    for name in ("a", "b") if rng.random() < 0.8 else ("a", text(rng).replace("/", "").replace("\0", "")[:80] or "b"):
        inner = place / known(name)
        inner.mkdir(exist_ok=True)
        for row in range(ROWS // 2):
            odd = rng.random() < 0.15
            file = f"{row}{rng.choice(('.png', '.png', '.jpg', '.tif', '.bmp', '.webp'))}"
            file = known(f"{text(rng)[:40]}.png").replace("/", "").replace("\0", "") if odd else file
            (inner / file).write_bytes(odd_picture(rng) if odd else picture("PNG", row))


def idx(rng: Random, place: Path) -> None:
    """The four files of MNIST."""
    end = rng.choice(("", ".gz"))
    for part in ("train", "t10k"):
        images = bytes((0, 0, 8, 3)) + struct.pack(">III", ROWS, 8, 8) + bytes(range(64)) * ROWS
        labels = bytes((0, 0, 8, 1)) + struct.pack(">I", ROWS) + bytes(row % 2 for row in range(ROWS))
        for name, content in ((f"{part}-images-idx3", images), (f"{part}-labels-idx1", labels)):
            odd = rng.random() < 0.3
            held = damaged(rng, content) if odd and rng.random() < 0.5 else content
            held += b"\0" * BOMB if rng.random() < 0.02 else b""
            packed = gzip.compress(held, 1) if end else held
            (place / f"{name}-ubyte{end}").write_bytes(damaged(rng, packed) if odd and rng.random() < 0.5 else packed)


def cifar(rng: Random, place: Path) -> None:
    """The files of CIFAR-10, as they are or damaged: they are pickles, which nobody unpickles."""
    for name in ("data_batch_1", "test_batch", "data_batch_1.bin", "test_batch.bin"):
        row = bytes([rng.randrange(12)]) + bytes(3072)
        (place / name).write_bytes(rng.choice((b"cos\nsystem\n(S'false'\ntR.", row * 3, damaged(rng, row * 3))))


def published(rng: Random, place: Path) -> None:
    """The tables of ISIC 2019 and of RSNA's haemorrhages, with pictures or slices."""
    if rng.random() < 0.5:
        names = [f"ISIC_{row:07}" for row in range(ROWS)]
        table = [",".join(["image", "MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC", "UNK"])]
        table += [
            ",".join([name, *("1.0" if at == row % 2 else "0.0" for at in range(9))]) for row, name in enumerate(names)
        ]
        files, target = (
            {f"{name}.jpg": picture("JPEG", row) for row, name in enumerate(names)},
            "ISIC_2019_Training_GroundTruth.csv",
        )
    else:
        names = [f"ID_{row:09x}" for row in range(ROWS)]
        kinds = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural", "any")
        table = [
            "ID,Label",
            *(
                f"{name}_{kind},{row % 2 if kind in ('any', 'subdural') else 0}"
                for row, name in enumerate(names)
                for kind in kinds
            ),
        ]
        files, target = {f"{name}.dcm": dicom(rng) for name in names}, "stage_2_train.csv"
    for name, content in files.items():
        (place / name).write_bytes(damaged(rng, content) if rng.random() < 0.2 else content)
    whole = "\n".join([*table, ""]).encode()
    (place / target).write_bytes(damaged(rng, whole) if rng.random() < 0.4 else whole)


def dicom(rng: Random) -> bytes:
    """A CT slice, of which some heads claim what is not there; without the reader's package some bytes."""
    try:
        from pydicom.dataset import Dataset, FileMetaDataset
        from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian
    except ImportError:
        return b"\0" * 128 + b"DICM" + bytes(100)
    own, file = Dataset(), BytesIO()
    own.file_meta = FileMetaDataset()
    own.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    own.file_meta.MediaStorageSOPClassUID = own.SOPClassUID = CTImageStorage
    own.file_meta.MediaStorageSOPInstanceUID = own.SOPInstanceUID = "1.2.3"
    own.Modality, own.PhotometricInterpretation, own.PixelRepresentation = "CT", "MONOCHROME2", 0
    odd = rng.random() < 0.15
    own.Rows, own.Columns = (rng.choice((0, 65535)), rng.choice((8, 65535))) if odd else (8, 8)
    own.SamplesPerPixel, own.BitsAllocated, own.BitsStored, own.HighBit = rng.choice((3, 1)) if odd else 1, 16, 16, 15
    own.RescaleSlope, own.RescaleIntercept = rng.choice(("1", "0", "-1e300")) if odd else "1", "-1024"
    own.PixelData = bytes(128)
    own.save_as(file, enforce_file_format=True)
    return file.getvalue()


# One case


def play(rng: Random, room: Path) -> bool:
    """Loads a dataset, and looks at it; what loads can be looked at, and makes clients."""
    place = room / "own"
    place.mkdir(parents=True)
    try:
        rng.choice(LAYOUTS)(rng, place)
        return _load(settings(rng, place), room / "cache")
    finally:
        shutil.rmtree(room)


def settings(rng: Random, place: Path) -> DataSettings:
    """How the files are to be read."""
    files = sorted(path for path in place.iterdir() if path.is_file())
    alone = files[0] if len(files) == 1 and rng.random() < 0.3 else place
    table: dict[str, object] = {"dataset": str(alone), "clients": 2, "max_bytes": MAX_BYTES, "max_pixels": MAX_PIXELS}
    if rng.random() < 0.7:
        table["image_size"] = 8
    if rng.random() < 0.1:
        table |= {"clients": None, "split": "column", "column": rng.choice(("site", "age", text(rng)[:20]))}
    if rng.random() < 0.1:
        table["label_column"] = rng.choice(("site", "MEL,NV", "age", "a,b"))
    return DataSettings.model_validate(table)


def _load(asked: DataSettings, cache: Path) -> bool:
    report = _looked_at(asked, cache)
    data = load(asked, cache.parent, cache)
    assert not any(map(CONTROL.search, data.skipped)), data.skipped
    assert data.train.images.shape[0] == len(data.train.labels)
    np.asarray(data.test.images).sum()
    table = {"data": asked.model_dump(exclude_none=True), "model": {"name": "mlp"}}
    try:
        federate(check_experiment(table, "fuzz"), data)
    except (DataError, SettingsError) as error:
        require_plain_message(str(error))
    assert report or data.skipped, "it loads, and check says nothing of it"
    return True


def _looked_at(asked: DataSettings, cache: Path) -> bool:
    """Whether `fedpca data check` found something; what it says is plain."""
    try:
        found = check(asked, cache.parent, cache, True, lambda done, total: None)
    except DataError as error:
        require_plain_message(str(error))
        return False
    lines = [*found.errors, *found.notes, *found.classes, *found.columns, *found.columns.values()]
    assert not any(map(CONTROL.search, lines)), lines
    json.dumps([*lines, list(found.sizes.items())], allow_nan=False)
    return bool(found.images or found.errors)


@contextmanager
def opened(within: Path) -> Iterator[Door]:
    """Datasets in this folder, one after another."""
    yield Door(lambda rng: play(rng, within / "room"))


LAYOUTS: tuple[Write, ...] = (npz, npz, csv, csv, parquet, parquet, folder, folder, idx, cifar, published, published)
DATA = Target("data", 2_000, 60.0, opened)
