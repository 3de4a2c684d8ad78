"""Decoded images are kept whole or not at all, and pictures of every kind become the same bytes."""

import os
import subprocess
import sys
import threading
import time
import tracemalloc
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from fedpca.data.cache import fingerprint, open_or_decode
from fedpca.data.folders import whole_folder
from fedpca.data.formats.pictures import Decoding
from fedpca.data.formats.source import Source
from fedpca.data.labels import RawDataset
from fedpca.errors import DataError


def encoded(image, kind="PNG", **options):
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def grey(value=100, size=(4, 4)):
    return encoded(Image.new("L", size, value))


def colour(size=(4, 4)):
    return encoded(Image.new("RGB", size, (10, 20, 30)))


def raw(train, test=None, columns=None):
    def source(place, pictures, columns=None):
        named = [(f"{place} {row}", picture) for row, picture in enumerate(pictures)]
        return Source(place, "labels", [0] * len(named), lambda: iter(named), columns or {})

    test = [grey()] if test is None else test
    labels = np.arange(len(train)) % 2, np.arange(len(test)) % 2
    rows = np.arange(len(train)), np.arange(len(train), len(train) + len(test))
    return RawDataset((source("train", train, columns), source("test", test)), labels, ("a", "b"), rows)


def kept(tmp_path, train, test=None, size=None, columns=None, progress=lambda done, total: None):
    return open_or_decode(tmp_path / "entry", "own", lambda: raw(train, test, columns), Decoding(size), progress)


def refuse():
    raise AssertionError("read again")


# Pictures


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (encoded(Image.new("L", (2, 2), 77)), [77]),
        (encoded(Image.new("1", (2, 2), 1)), [255]),
        (encoded(Image.fromarray(np.full((2, 2), 65535, np.uint16))), [255]),
        (encoded(Image.fromarray(np.full((2, 2), 257 * 9, np.uint16)), "TIFF"), [9]),
        (encoded(Image.fromarray(np.full((2, 2), 0.2, np.float32)), "TIFF"), [51]),
        (encoded(Image.new("LA", (2, 2), (50, 255))), [50]),
        (encoded(Image.new("LA", (2, 2), (50, 0))), [255]),
        (encoded(Image.new("RGB", (2, 2), (1, 2, 3))), [1, 2, 3]),
        (encoded(Image.new("RGBA", (2, 2), (1, 2, 3, 255))), [1, 2, 3]),
        (encoded(Image.new("RGBA", (2, 2), (1, 2, 3, 0))), [255, 255, 255]),
        (encoded(Image.new("RGB", (2, 2), (9, 8, 7)).quantize(4)), [9, 8, 7]),
        (encoded(Image.new("RGB", (2, 2), (9, 9, 9)).quantize(4)), [9]),
        (encoded(Image.new("RGB", (2, 2), (9, 8, 7)), "WEBP", lossless=True), [9, 8, 7]),
        (encoded(Image.new("CMYK", (2, 2), (0, 0, 0, 0)), "TIFF"), [255, 255, 255]),
        (np.full((2, 2), 5, np.uint8), [5]),
        (np.full((2, 2, 3), 5, np.uint8), [5, 5, 5]),
    ],
)
def test_pictures_of_every_kind(tmp_path, picture, expected):
    images = kept(tmp_path, [picture, picture], [picture]).train.images
    assert images.shape == (2, len(expected), 2, 2)
    np.testing.assert_array_equal(images[1, :, 0, 0], expected)


def test_a_colour_picture_anywhere_makes_all_colour(tmp_path):
    data = kept(tmp_path, [grey(100)] * 3, [grey(50), colour()])
    assert data.train.images.shape == (3, 3, 4, 4)
    assert (data.train.images == 100).all()
    np.testing.assert_array_equal(data.test.images[:, :, 0, 0], [[50, 50, 50], [10, 20, 30]])


def test_pictures_of_different_sizes_need_a_size(tmp_path):
    with pytest.raises(DataError) as error:
        kept(tmp_path, [grey(), grey(size=(6, 5))])
    assert all(word in str(error.value) for word in ["train 0", "4x4", "train 1", "5x6", "data.image_size"])
    with pytest.raises(DataError, match=r"test 0.*data\.image_size"):
        kept(tmp_path, [grey()], [grey(size=(6, 5))])
    assert not list(tmp_path.iterdir())
    assert kept(tmp_path, [grey(), grey(size=(6, 5))], size=8).train.images.shape == (2, 1, 8, 8)


def test_resizing_is_bilinear(tmp_path):
    array = np.arange(64, dtype=np.uint8).reshape(8, 8)
    expected = np.asarray(Image.fromarray(array).resize((4, 4), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(kept(tmp_path, [array], size=4).train.images[0, 0], expected)


def test_unreadable_pictures_are_skipped_with_their_labels_and_columns(tmp_path):
    pictures = [grey(1), b"no image", grey(2), grey(3)[:-30], tmp_path / "gone.png", None, *[grey(4)] * 4]
    data = kept(tmp_path, pictures, columns={"center": list("abcdefghij")})
    assert data.train.images[:, 0, 0, 0].tolist() == [1, 2, 4, 4, 4, 4]
    assert data.train.labels.tolist() == [0, 0, 0, 1, 0, 1]
    assert data.train.columns["center"].tolist() == list("acghij")
    assert [line.partition(":")[0] for line in data.skipped] == ["train 1", "train 3", "train 4", "train 5"]
    assert "known format" in data.skipped[0]
    assert "gone.png" in data.skipped[2]


def test_more_than_half_unreadable_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"train: 2 of 3 images cannot be read.*train 0.*data\.image_root"):
        kept(tmp_path, [b"x", b"y", grey()])
    with pytest.raises(DataError, match=r"test: 1 of 1 images cannot be read"):
        kept(tmp_path, [grey()], [b"x"])
    assert len(kept(tmp_path, [b"x", grey()]).skipped) == 1


# Entries


def test_images_are_mapped_read_only_and_decoded_once(tmp_path):
    first = kept(tmp_path, [grey(1), grey(2)], columns={"center": ["é", ""]})
    second = open_or_decode(tmp_path / "entry", "own", refuse, Decoding(), lambda done, total: None)
    for data in (first, second):
        assert isinstance(data.train.images, np.memmap)
        assert not data.train.images.flags.writeable
        assert data.train.images.dtype == np.uint8
        assert data.train.labels.dtype == np.int64
        assert data.train.columns["center"].tolist() == ["é", ""]
        assert data.classes == ("a", "b")


def test_progress_counts_up_to_all_images_of_both_parts(tmp_path):
    told = []
    kept(tmp_path, [grey()] * 70, [grey()] * 20, progress=lambda done, total: told.append((done, total)))
    assert told == [(64, 90), (70, 90), (90, 90)]


@pytest.mark.parametrize("name", ["train_images.npy", "test_labels.npy", "about.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_entry_is_made_again(tmp_path, name, damage):
    kept(tmp_path, [grey(1), grey(2)])
    path = tmp_path / "entry" / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    assert kept(tmp_path, [grey(1), grey(2)]).train.images[:, 0, 0, 0].tolist() == [1, 2]
    assert [entry.name for entry in tmp_path.iterdir()] == ["entry"]


def test_a_failure_leaves_nothing_behind(tmp_path):
    with pytest.raises(FileNotFoundError), whole_folder(tmp_path / "entry") as folder:
        (folder / "half").write_bytes((tmp_path / "absent").read_bytes())
    assert not list(tmp_path.iterdir())


def test_an_error_while_writing_is_not_swallowed_where_an_entry_exists(tmp_path):
    (tmp_path / "entry").mkdir()
    with pytest.raises(OSError, match="full"), whole_folder(tmp_path / "entry"):
        raise OSError("full")


def test_the_quicker_of_two_writers_stays(tmp_path):
    with whole_folder(tmp_path / "entry") as slow:
        (slow / "who").write_text("slow")
        with whole_folder(tmp_path / "entry") as quick:
            (quick / "who").write_text("quick")
    assert (tmp_path / "entry" / "who").read_text() == "quick"
    assert [entry.name for entry in tmp_path.iterdir()] == ["entry"]


def test_many_at_once_get_the_same_data(tmp_path):
    results = []
    threads = [threading.Thread(target=lambda: results.append(kept(tmp_path, [grey(7)] * 50))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(data.train.images == 7).all() for data in results] == [True] * 6
    assert [entry.name for entry in tmp_path.iterdir()] == ["entry"]


KILLED = """
import os, sys
from pathlib import Path
from fedpca.data.folders import whole_folder
with whole_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    os._exit(9)
"""


def test_a_killed_process_leaves_no_entry_and_its_rest_is_swept_after_a_day(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "entry")], check=False)
    (rest,) = tmp_path.iterdir()
    assert rest.name.startswith(".")
    kept(tmp_path, [grey(3)])
    assert rest.exists()
    os.utime(rest, (time.time() - 100_000,) * 2)
    with whole_folder(tmp_path / "other"):
        assert not rest.exists()


def test_a_cache_that_cannot_be_written_names_the_remedy(tmp_path):
    (tmp_path / "entry-parent").write_text("a file where a folder is needed")
    with pytest.raises(DataError, match=r"entry-parent.*FEDPCA_CACHE"):
        open_or_decode(
            tmp_path / "entry-parent" / "e", "own", lambda: raw([grey()]), Decoding(), lambda done, total: None
        )


def test_memory_stays_bounded_by_the_batch(tmp_path):
    picture = grey(size=(256, 256))
    tracemalloc.start()
    kept(tmp_path, [picture] * 1000, [picture])  # 66 MB decoded
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_the_fingerprint_changes_with_files_and_settings(tmp_path):
    path = tmp_path / "a"
    path.write_text("1")
    first = fingerprint([path], {"image_size": 8})
    assert first == fingerprint([path], {"image_size": 8})
    assert first != fingerprint([path], {"image_size": 9})
    os.utime(path, ns=(1, 1))
    second = fingerprint([path], {"image_size": 8})
    path.write_text("12")
    os.utime(path, ns=(1, 1))
    assert len({first, second, fingerprint([path], {"image_size": 8}), fingerprint([], {"image_size": 8})}) == 4
