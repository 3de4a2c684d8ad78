"""How much of a file is taken into memory: what claims more, or unpacks to more, is refused by its header."""

import gzip
import io
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydicom import dcmread
from pydicom.uid import DeflatedExplicitVRLittleEndian

from fedpca.data.datasets import decoding_settings, load
from fedpca.data.formats.pictures import Decoding, decoded_size, pixels, stated_size
from fedpca.data.formats.source import Slice
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings
from tests.data.made import encoded, write_slice

SMALL = 1_000_000  # the least that data.max_bytes can be


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int) -> bytes:
    """A PNG that claims a size and has no pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("side", "words"), [(8000, "data.max_pixels = 50000000"), (13_000, "data.max_pixels")])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # of which a process makes an error
def test_a_picture_of_too_many_pixels_is_refused_by_its_header(side: int, words: str):
    for found in (pixels(Decoding(), 1, png(side, side)), stated_size(Decoding().max_pixels, png(side, side))):
        assert isinstance(found, str)
        assert words in found
        assert "make it smaller" in found


def test_the_setting_says_how_many_pixels_a_picture_may_have(tmp_path: Path):
    for label in "ab":
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(4):
            size = (60, 60) if (label, number) == ("a", 0) else (20, 20)
            (tmp_path / "own" / label / f"{number}.png").write_bytes(encoded("PNG", 7, size))
    settings = DataSettings(dataset=str(tmp_path / "own"), clients=2, image_size=8)
    assert load(settings, cache_dir=tmp_path / "cache").skipped == ()
    bounded = settings.model_copy(update={"max_pixels": 1000})
    (line,) = load(bounded, cache_dir=tmp_path / "cache").skipped
    assert line.endswith("60x60 pixels are more than data.max_pixels = 1000: make it smaller")
    assert decoding_settings(settings, False) != decoding_settings(bounded, False)


def test_what_pillow_would_have_executed_is_no_image():
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    assert Image.open(io.BytesIO(postscript)).format == "EPS"  # Ghostscript would run it
    assert pixels(Decoding(), 1, postscript) == "not an image of a known format"


def test_a_device_and_an_endless_file_are_no_pictures(tmp_path: Path):
    assert pixels(Decoding(), 1, Path("/dev/zero")) == "/dev/zero is no file"
    with (tmp_path / "long.png").open("wb") as file:
        file.truncate(2**40)
    assert "bytes holds more than data.max_pixels" in str(pixels(Decoding(), 1, tmp_path / "long.png"))


def test_a_slice_of_too_many_pixels_and_one_packed_as_a_whole_are_refused(tmp_path: Path):
    path = write_slice(tmp_path / "a.dcm", np.zeros((8, 8)))
    assert decoded_size(64, Slice(path)) == (8, 8)
    assert "8x8 pixels are more than data.max_pixels = 63" in str(decoded_size(63, Slice(path)))
    slice_ = dcmread(path)
    slice_.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    slice_.save_as(path, enforce_file_format=True)
    assert "deflated as a whole" in str(decoded_size(64, Slice(path)))


def npy(shape: str, kind: str, data: bytes) -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def npz(path: Path, **arrays: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in arrays.items():
            file.writestr(f"{name}.npy", content)
    return path


LABELS = npy("(2,)", "|u1", b"\0\1")


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (npy("(1000000, 1000, 1000)", "|u1", b"12"), LABELS, ["array x", "claims 1000.0 GB", "but has"]),
        (npy("(1000000, 1000000)", "<f8", b"12"), LABELS, ["array x", "claims 8000.0 GB"]),
        (npy("(2, 1000, 1000)", "|u1", bytes(2_000_000)), LABELS, ["array x", "data.max_bytes = 1000000"]),
        (npy("(2, 2, 2)", "|u1", bytes(8)), npy("(100000,)", "|u1", bytes(100_000)), ["array y", "data.max_bytes"]),
        (npy("(30000, 2)", "|u1", bytes(60_000)), LABELS, ["array x", "data.max_bytes"]),
        (npy("(2, 2, 2)", "|u1", bytes(8)), b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{", ["claims 2147483647 bytes"]),
        (npy("(2, -2, 2)", "|u1", bytes(8)), LABELS, ["plain arrays"]),
    ],
    ids=["images", "table", "bomb", "labels", "cells", "head", "negative"],
)
def test_an_array_that_claims_or_takes_too_much_is_refused(tmp_path: Path, x: bytes, y: bytes, words: list[str]):
    path = npz(tmp_path / "own.npz", x=x, y=y)
    tracemalloc.start()
    with pytest.raises(DataError) as error:
        load(DataSettings(dataset=str(path), clients=2, max_bytes=SMALL), cache_dir=tmp_path / "cache")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [word for word in [*words, "own.npz"] if word not in str(error.value)] == [], str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert peak < 20 * SMALL


def test_a_gzip_bomb_is_unpacked_up_to_the_bound_alone(tmp_path: Path):
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte.gz").write_bytes(gzip.compress(bytes(30_000_000)))
    with pytest.raises(DataError, match=r"idx1-ubyte.gz would take .* more than data.max_bytes"):
        load(DataSettings(dataset=str(tmp_path), clients=2, max_bytes=SMALL), cache_dir=tmp_path / "cache")


def test_a_small_parquet_file_of_very_many_rows_is_refused(tmp_path: Path):
    pq.write_table(
        pa.table({"x": pa.array(np.zeros(100_000)), "label": np.arange(100_000) % 2}), tmp_path / "a.parquet"
    )
    assert (tmp_path / "a.parquet").stat().st_size < SMALL
    with pytest.raises(DataError, match=r"a.parquet, column '(x|label)' would take .* data.max_bytes"):
        load(DataSettings(dataset=str(tmp_path), clients=2, max_bytes=SMALL), cache_dir=tmp_path / "cache")
