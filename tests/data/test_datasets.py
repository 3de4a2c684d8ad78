"""Datasets by name and by path: found, downloaded from a server on this machine, split, and checked."""

import csv
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from fedpca.data import places
from fedpca.data.datasets import load
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

FASHION = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch, tmp_path):
    """No folder of the user or the system, and no network, unless a test provides them."""
    monkeypatch.delenv("FEDPCA_DATA", raising=False)
    monkeypatch.delenv("FEDPCA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(places, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(places, "HUB", "http://127.0.0.1:9")


def asking(dataset, **changes):
    return DataSettings(dataset=str(dataset), clients=2, **changes)


def png(value=0, mode="L", size=(4, 4)):
    file = BytesIO()
    Image.new(mode, size, value).save(file, "PNG")
    return file.getvalue()


def parquet(labels, **columns):
    file = BytesIO()
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    images = pa.array([{"bytes": png(row), "path": None} for row in range(len(labels))], kind)
    pq.write_table(pa.table({"image": images, "label": labels, **columns}), file)
    return file.getvalue()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_csv(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


# Digits


def test_digits_are_embedded_and_split_eight_to_two():
    data = load(asking("digits"))
    assert data.train.images.shape == (1438, 1, 8, 8)
    assert data.test.images.shape == (359, 1, 8, 8)
    assert (data.train.images.min(), data.train.images.max()) == (0, 255)
    assert data.classes == tuple("0123456789")
    assert data.train.labels.dtype == np.int64
    np.testing.assert_array_equal(data.train.images, load(asking("digits", seed=5)).train.images)


def test_digits_are_all_there_once():
    data = load(asking("digits"))
    images, labels = load_digits(return_X_y=True)
    both = np.concatenate([data.train.images, data.test.images]).reshape(-1, 64)
    given = np.concatenate([data.train.labels, data.test.labels])
    rows = sorted(map(tuple, np.c_[np.rint(both / 255 * 16), given].astype(int)))
    assert rows == sorted(map(tuple, np.c_[images, labels].astype(int)))


# Where data and cache are


def test_data_and_cache_folder_come_from_argument_environment_or_user(tmp_path, monkeypatch):
    for folder in ("given", "environment", "user/fedpca/data"):
        write(tmp_path / folder / "own" / "train.parquet", parquet([0, 1, 0, 1]))
        write(tmp_path / folder / "own" / "test.parquet", parquet([0] * len(folder)))
    assert len(load(asking("own")).test.labels) == len("user/fedpca/data")
    assert [path.name[:4] for path in (tmp_path / "user/fedpca/decoded").iterdir()] == ["own-"]
    monkeypatch.setenv("FEDPCA_DATA", str(tmp_path / "environment"))
    monkeypatch.setenv("FEDPCA_CACHE", str(tmp_path / "cache"))
    assert len(load(asking("own")).test.labels) == len("environment")
    assert len(list((tmp_path / "cache").iterdir())) == 1
    data = load(asking("own"), data_dir=tmp_path / "given", cache_dir=tmp_path / "kept")
    assert len(data.test.labels) == len("given")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_nothing_is_written_into_the_data_folder(tmp_path):
    path = write(tmp_path / "data" / "own" / "train.parquet", parquet([0, 1, 0, 1]))
    load(asking("own"), data_dir=tmp_path / "data")
    assert [entry for entry in (tmp_path / "data").rglob("*") if entry.is_file()] == [path]


def test_changed_files_and_settings_are_decoded_anew_and_a_seed_only_where_it_splits(tmp_path):
    path = write(tmp_path / "own" / "train.parquet", parquet([0, 1] * 10))
    write(tmp_path / "own" / "test.parquet", parquet([0, 1]))
    cache = tmp_path / "user/fedpca/decoded"
    for seed in (0, 1):
        load(asking(tmp_path / "own", seed=seed))
    assert len(list(cache.iterdir())) == 1
    load(asking(tmp_path / "own", image_size=8))
    assert len(list(cache.iterdir())) == 2
    write(path, parquet([0, 1, 1]))
    assert len(load(asking(tmp_path / "own")).train.labels) == 3
    (tmp_path / "own" / "test.parquet").unlink()
    write(path, parquet([0, 1] * 10))
    drawn = [load(asking(tmp_path / "own", seed=seed)).test.images[:, 0, 0, 0].tolist() for seed in (0, 1, 0)]
    assert drawn[0] == drawn[2] != drawn[1]


def test_an_unknown_name_is_told_what_there_is(tmp_path):
    (tmp_path / "hospital").mkdir()
    with pytest.raises(DataError) as error:
        load(asking("hospitl"), data_dir=tmp_path)
    words = ["'hospitl'", "did you mean 'hospital'", "digits", "cifar10", str(tmp_path / "hospitl"), "FEDPCA_DATA"]
    assert all(word in str(error.value) for word in [*words, "--data-dir"])


def test_a_folder_without_a_known_layout_is_told_what_it_holds(tmp_path):
    write(tmp_path / "own" / "notes.txt", b"hello")
    with pytest.raises(DataError, match=r"own holds no images.*train\*\.parquet.*got notes\.txt"):
        load(asking("own"), data_dir=tmp_path)


# Known datasets


@pytest.mark.skipif(not FASHION.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_fashion_mnist_of_the_system(monkeypatch):
    monkeypatch.setattr(places, "SYSTEM", FASHION.parent)
    data = load(asking("fashion-mnist"))
    assert data.train.images.shape == (60000, 1, 28, 28)
    assert data.test.images.shape == (10000, 1, 28, 28)
    assert np.bincount(data.train.labels).tolist() == [6000] * 10
    assert data.classes[data.train.labels[0]] == "Ankle boot"
    assert data.skipped == ()


@pytest.mark.parametrize("place", ["cifar10", "cifar10/plain_text"])
def test_cifar10_in_the_layout_of_the_hub(tmp_path, place):
    for part in ("train", "test"):
        write(tmp_path / place / f"{part}-00000-of-00001.parquet", parquet([3, 9]))
    data = load(asking("cifar10"), data_dir=tmp_path)
    assert data.name == "cifar10"
    assert [data.classes[label] for label in data.train.labels] == ["cat", "truck"]


@pytest.mark.parametrize("place", ["cifar-10-batches-py", "cifar10/cifar-10-batches-py"])
def test_cifar10_in_its_original_batches(tmp_path, place):
    import pickle

    pixels = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        write(tmp_path / place / name, pickle.dumps({"labels": [3, 9], "data": pixels}, 2))
    data = load(asking("cifar10"), data_dir=tmp_path)
    assert data.train.images.shape == (10, 3, 32, 32)
    np.testing.assert_array_equal(data.test.images.reshape(2, 3072), pixels)


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_DATA" not in os.environ, reason="needs FEDPCA_DATA with cifar10 in it")
def test_the_real_cifar10(tmp_path):
    if not (DATA / "cifar10").is_dir():
        pytest.skip("there is no cifar10 in FEDPCA_DATA")
    data = load(asking("cifar10"), data_dir=DATA)
    assert data.train.images.shape == (50000, 3, 32, 32)
    assert data.test.images.shape == (10000, 3, 32, 32)
    assert np.bincount(data.train.labels).tolist() == [5000] * 10
    assert data.classes[data.train.labels[0]] == "frog"
    assert data.skipped == ()


DATA = Path(os.environ.get("FEDPCA_DATA", "."))


# Downloads


@contextmanager
def serving(answers):
    """A server on this machine: path -> (bytes, length it claims); other paths are not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path not in answers:
                self.send_error(404)
                return
            data, length = answers[self.path]
            self.send_response(200)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def hub_files(**changed):
    folder = "/zalando-datasets/fashion_mnist/resolve/main/fashion_mnist"
    files = {part: parquet([0, 1, 2]) for part in ("train", "test")}
    answers = {part: (data, len(data)) for part, data in files.items()} | changed
    return {f"{folder}/{part}-00000-of-00001.parquet": answer for part, answer in answers.items() if answer}


def test_a_known_dataset_is_downloaded_once_into_the_users_folder(tmp_path, monkeypatch):
    seen = []
    with serving(hub_files()) as address:
        monkeypatch.setattr(places, "HUB", address)
        load(asking("fashion-mnist"), data_dir=tmp_path / "data", progress=lambda *it: seen.append(it))
    assert seen[0][0] == seen[0][1] == len(parquet([0, 1, 2]))
    assert seen[-1] == (6, 6)
    assert not (tmp_path / "data").exists()
    assert len(list((tmp_path / "user/fedpca/data/fashion-mnist").iterdir())) == 2
    again = load(asking("fashion-mnist"), data_dir=tmp_path / "data", cache_dir=tmp_path / "other")
    assert again.train.labels.tolist() == [0, 1, 2]


WHOLE = parquet([0, 1, 2])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((WHOLE[:100], len(WHOLE)), ["100", str(len(WHOLE))]),
        ((WHOLE[:100], None), ["got something else than a parquet file"]),
        ((b"<html>please log in</html>", 26), ["got something else than a parquet file"]),
        ((b"", 0), ["got something else than a parquet file"]),
        (None, ["404"]),
    ],
    ids=["broken off", "broken off, length unknown", "another page", "empty", "not found"],
)
def test_a_download_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, answer, words):
    with serving(hub_files(test=answer)) as address:
        monkeypatch.setattr(places, "HUB", address)
        with pytest.raises(DataError) as error:
            load(asking("fashion-mnist"), data_dir=tmp_path / "data")
    assert all(word in str(error.value) for word in words)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or "fashion" in path.name]


def test_without_network_the_message_says_where_to_put_what(tmp_path):
    with pytest.raises(DataError) as error:
        load(asking("cifar10"), data_dir=tmp_path)
    listed = [tmp_path / "cifar10", tmp_path / "cifar-10-batches-py", tmp_path / "user/fedpca/data/cifar10"]
    words = ["cifar10", "download", "train-00000-of-00001.parquet", "--data-dir", "FEDPCA_DATA", *map(str, listed)]
    assert all(word in str(error.value) for word in words)


# Own data


def test_data_without_a_test_part_are_split_by_class(tmp_path):
    for name, count in (("cat", 20), ("dog", 10), ("owl", 2), ("yak", 1)):
        for number in range(count):
            write(tmp_path / "own" / name / f"{number}.png", png(number))
    data = load(asking(tmp_path / "own", test_share=0.3))
    assert data.classes == ("cat", "dog", "owl", "yak")
    assert np.bincount(data.test.labels, minlength=4).tolist() == [6, 3, 1, 0]
    assert np.bincount(data.train.labels, minlength=4).tolist() == [14, 7, 1, 1]
    cats = [part.images[part.labels == 0, 0, 0, 0].tolist() for part in (data.train, data.test)]
    assert sorted(cats[0] + cats[1]) == list(range(20))


def test_a_csv_keeps_its_columns_through_the_split(tmp_path):
    rows = [[f"{number}.png", "ab"[number % 2], f"site {number}"] for number in range(10)]
    for number in range(10):
        write(tmp_path / f"{number}.png", png(number))
    data = load(asking(write_csv(tmp_path / "own.csv", ["image", "label", "center"], *rows)))
    for part in (data.train, data.test):
        assert part.columns["center"].tolist() == [f"site {value}" for value in part.images[:, 0, 0, 0]]
        assert [data.classes[label] for label in part.labels] == ["ab"[value % 2] for value in part.images[:, 0, 0, 0]]


def test_a_csv_in_which_an_image_is_missing(tmp_path):
    for number in range(8):
        write(tmp_path / "own" / f"{number}.png", png(number))
    write_csv(
        tmp_path / "own" / "train.csv", ["image", "label"], *[[f"{number}.png", number % 2] for number in range(9)]
    )
    write_csv(tmp_path / "own" / "test.csv", ["image", "label"], ["0.png", 0])
    data = load(asking("own"), data_dir=tmp_path)
    assert len(data.train.images) == len(data.train.labels) == 8
    assert len(data.skipped) == 1
    assert "8.png" in data.skipped[0]
    write(tmp_path / "own" / "8.png", png(8))
    assert load(asking("own"), data_dir=tmp_path).skipped == ()


def test_an_npz_by_path(tmp_path):
    x = np.arange(10 * 5 * 5, dtype=np.uint8).reshape(10, 5, 5)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(10) % 2, x_test=x[:2], y_test=[1, 0])
    data = load(asking(tmp_path / "own.npz"))
    assert data.name == "own"
    np.testing.assert_array_equal(data.train.images[:, 0], x)
    assert data.test.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        ([0, -1, 1], [0], ["train.parquet", "'label'", "-1", "0 to 1"]),
        ([0, 1, 0], [5], ["test.parquet", "'label'", "5", "0 to 1"]),
        ([0, 40000, 123], [0], ["train.parquet", "'label'", "40000", "data.label_column"]),
        ([1, 1, 1], [1], ["train.parquet", "two classes", "'1'"]),
        (["a", "b"], ["c"], ["test.parquet", "'c'", "a, b"]),
        ([], [0], ["train.parquet", "empty"]),
    ],
)
def test_labels_that_do_not_fit(tmp_path, train, test, words):
    write(tmp_path / "own" / "train.parquet", parquet(train))
    write(tmp_path / "own" / "test.parquet", parquet(test))
    with pytest.raises(DataError) as error:
        load(asking("own"), data_dir=tmp_path)
    assert all(word in str(error.value) for word in words)


def test_integers_spelled_in_a_text_file_stand_for_themselves(tmp_path):
    write(tmp_path / "a.png", png())
    rows = [["a.png", label] for label in ("10", "2", "0", "1", "3", "9")]
    write_csv(tmp_path / "train.csv", ["image", "label"], *rows)
    write_csv(tmp_path / "test.csv", ["image", "label"], *rows)
    data = load(asking(tmp_path))
    assert data.train.labels.tolist() == [10, 2, 0, 1, 3, 9]
    assert len(data.classes) == 11


def test_one_image_per_class_leaves_nothing_to_test(tmp_path):
    write(tmp_path / "own.parquet", parquet([0, 1]))
    with pytest.raises(DataError, match=r"one image per class.*test part"):
        load(asking(tmp_path / "own.parquet"))


def test_reading_data_does_not_need_torch():
    code = "import sys, fedpca.data.datasets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
