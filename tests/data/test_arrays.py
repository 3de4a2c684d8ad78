"""Npz files, idx files and CIFAR's batches, read from small files that the tests write."""

import gzip
import os
import pickle
import pickletools
import struct
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from fedpca.data.formats.recognise import recognise
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)


def read(place):
    layout = recognise(place, DataSettings(clients=2))
    assert layout is not None
    return layout.read()


# Npz


@pytest.mark.parametrize("names", [("x", "y"), ("images", "labels"), ("x_train", "y_train")])
@pytest.mark.parametrize("shape", [(2, 5, 6), (2, 5, 6, 3), (2, 3, 5, 6), (2, 5, 6, 1), (2, 1, 5, 6)])
def test_npz_in_every_shape(tmp_path, names, shape):
    x = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.savez(tmp_path / "own.npz", **{names[0]: x, names[1]: np.array([[0], [1]])})
    train, test = read(tmp_path / "own.npz")
    picture = next(train.pictures())[1]
    assert test is None
    assert train.labels == [0, 1]
    assert picture.shape == ((5, 6, 3) if 3 in shape else (5, 6))
    expected = x[0].transpose(1, 2, 0) if shape[1] in (1, 3) else x[0]
    np.testing.assert_array_equal(picture, expected.squeeze())


def test_npz_with_floats_names_and_a_test_part(tmp_path):
    x = np.array([0.0, 0.5, 1.0]).reshape(3, 1, 1)
    np.savez(tmp_path / "own.npz", x=x, y=["a", "b", "a"], x_test=x[:1], y_test=["a"])
    train, test = read(tmp_path)
    assert [int(picture[0, 0]) for _, picture in train.pictures()] == [0, 128, 255]
    assert train.labels == ["a", "b", "a"]
    assert test.labels == ["a"]


GREY = np.zeros((2, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": GREY}, ["x and y", "holds x"]),
        ({"x": GREY, "y": [0, 1], "x_test": GREY}, ["x_test and y_test"]),
        ({"x": GREY, "y": [0]}, ["2 images", "1 labels"]),
        ({"x": GREY[0, 0], "y": [0, 1]}, ["(N, H, W)", "(4,)"]),
        ({"x": GREY[0], "y": [0, 1]}, ["4 rows", "2 labels"]),
        ({"x": np.zeros((2, 5, 5, 7)), "y": [0, 1]}, ["channels", "(2, 5, 5, 7)"]),
        ({"x": GREY + 300.0, "y": [0, 1]}, ["0 to 1", "300"]),
        ({"x": GREY * np.nan, "y": [0, 1]}, ["image 0 ", "NaN", "2 of 2 images"]),
        ({"x": GREY + np.array([0, np.nan]).reshape(2, 1, 1), "y": [0, 1]}, ["image 1 (counted from 0)", "1 of 2"]),
        ({"x": GREY + np.array([np.inf, 0]).reshape(2, 1, 1), "y": [0, 1]}, ["image 0 ", "infinite"]),
        ({"x": GREY.astype(np.int32) + 300, "y": [0, 1]}, ["uint8", "300"]),
        ({"x": GREY, "y": [[0, 1], [1, 0]]}, ["(N,)", "(2, 2)"]),
        ({"x": np.array([None, {}], dtype=object), "y": [0, 1]}, ["plain arrays"]),
    ],
)
def test_npz_that_cannot_be_used(tmp_path, arrays, words):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(DataError) as error:
        read(tmp_path / "own.npz")
    assert all(word in str(error.value) for word in [*words, "own.npz"])


def test_npz_that_is_no_npz(tmp_path):
    (tmp_path / "own.npz").write_bytes(b"")
    with pytest.raises(DataError, match=r"own\.npz is not an \.npz file"):
        read(tmp_path / "own.npz")


# Idx


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write_idx(folder, pack):
    x, y = np.arange(2 * 5 * 6, dtype=np.uint8).reshape(2, 5, 6), np.array([3, 1], np.uint8)
    for part in ("train", "t10k"):
        for name, array in (("images-idx3", x), ("labels-idx1", y)):
            data = gzip.compress(idx(array)) if pack else idx(array)
            (folder / f"{part}-{name}-ubyte{'.gz' if pack else ''}").write_bytes(data)
    return x


@pytest.mark.parametrize("pack", [True, False])
def test_idx_files(tmp_path, pack):
    x = write_idx(tmp_path, pack)
    train, test = read(tmp_path)
    assert train.labels == test.labels == [3, 1]
    np.testing.assert_array_equal([picture for _, picture in train.pictures()], x)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("kept", [0, 3, 10, 30])
def test_idx_file_that_breaks_off(tmp_path, pack, kept):
    write_idx(tmp_path, pack)
    path = tmp_path / f"train-images-idx3-ubyte{'.gz' if pack else ''}"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"train-images.*fetch it again"):
        read(tmp_path)


def test_idx_files_must_be_four(tmp_path):
    write_idx(tmp_path, False)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.*missing"):
        read(tmp_path)


# CIFAR's python batches


def python2_batch(pixels, labels, fortran=False):
    """Bytes as Python 2's cPickle wrote the published files: protocol 2, byte strings, a NumPy 1 array."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    integers = b"".join(b"K" + bytes([label]) for label in labels)
    data = pixels.tobytes("F" if fortran else "C")
    count = b"M" + struct.pack("<H", len(labels))
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85" + text(b"b") + b"\x87R"
        b"(K\x01" + count + b"M\x00\x0c\x86cnumpy\ndtype\nq\x08" + text(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + (b"\x88" if fortran else b"\x89") + b"T" + struct.pack("<i", len(data)) + data + b"tb"
    )  # fmt: skip
    return (
        b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(b"training batch 1 of 5") + b"q\x03"
        + text(b"labels") + b"q\x04]q\x05(" + integers + b"e" + text(b"data") + array
        + text(b"filenames") + b"]q\x09(" + text(b"a.png") + text(b"b.png") + b"eu."
    )  # fmt: skip


def test_the_imitation_is_a_well_formed_pickle():
    listing = StringIO()
    pickletools.dis(python2_batch(PIXELS, [6, 9, 9, 4]), out=listing)
    assert "highest protocol among opcodes = 2" in listing.getvalue()


LABELS = [6, 9, 0, 4]
BATCHES = {
    "python 2": python2_batch(PIXELS, LABELS),
    "python 2, Fortran order": python2_batch(PIXELS, LABELS, fortran=True),
    "bytes": pickle.dumps({"data": PIXELS.tobytes(), "labels": LABELS}, 2),
    "array": pickle.dumps({"labels": LABELS, "data": PIXELS, "filenames": ["a"] * 4}, 2),
    "Fortran array": pickle.dumps({"labels": LABELS, "data": np.asfortranarray(PIXELS)}, 2),
    "bytes as keys": pickle.dumps({b"labels": LABELS, b"data": PIXELS}, 3),
}


def write_batches(folder, data):
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("data", BATCHES.values(), ids=BATCHES)
def test_cifar_batches(tmp_path, data):
    write_batches(tmp_path, data)
    train, test = read(tmp_path)
    assert train.labels == LABELS * 5
    assert test.labels == LABELS
    pictures = np.array([picture for _, picture in test.pictures()])
    np.testing.assert_array_equal(pictures.transpose(0, 3, 1, 2).reshape(4, 3072), PIXELS)


class Evil:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("beside", [{}, {"labels": LABELS, "data": PIXELS.tobytes()}], ids=["alone", "with pixels"])
def test_a_harmful_pickle_is_refused_and_not_run(tmp_path, protocol, beside):
    trace = tmp_path / "trace"
    write_batches(tmp_path, pickle.dumps({**beside, "x": Evil(trace)}, protocol))
    with pytest.raises(DataError, match=r"data_batch_1.*not run"):
        read(tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no pickle",
        BATCHES["bytes"][:5000],
        pickle.dumps({"labels": LABELS}, 2),
        pickle.dumps(PIXELS.tobytes(), 2),
    ],
)
def test_other_files_are_not_taken_for_batches(tmp_path, data):
    write_batches(tmp_path, data)
    with pytest.raises(DataError, match=r"data_batch_1 is not one of CIFAR's python batches"):
        read(tmp_path)


def test_the_test_batch_is_needed(tmp_path):
    write_batches(tmp_path, BATCHES["bytes"])
    Path(tmp_path / "test_batch").unlink()
    with pytest.raises(DataError, match="test_batch is missing"):
        read(tmp_path)
