"""`check` names what is wrong with an empty, a half-copied and a corrupt folder of every layout."""

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedpca.data import places
from fedpca.data.check import check, states
from fedpca.data.datasets import load
from fedpca.data.formats import published
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings
from tests.data.made import ISIC_TABLE, encoded, isic_folder, rsna_folder, rsna_name, write

INPUT = "ISIC_2019_Training_Input"


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDPCA_DATA", raising=False)
    monkeypatch.setenv("FEDPCA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(places, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(places, "HUB", "http://127.0.0.1:9")


def asking(dataset, **changes):
    return DataSettings(dataset=str(dataset), clients=2, **changes)


def report_of(dataset, data_dir, deep=False, progress=lambda done, total: None, **changes):
    return check(asking(dataset, **changes), data_dir, None, deep, progress)


def error_of(dataset, data_dir, **options):
    (error,) = report_of(dataset, data_dir, **options).errors
    return error


def cut(path, kept=0.5):
    os.truncate(path, int(path.stat().st_size * kept))


# The folders that are damaged below


def cifar_parquet(folder):
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    for part, count in (("train", 20), ("test", 10)):
        cells = [{"bytes": encoded("PNG", (row, 0, 0), (32, 32)), "path": None} for row in range(count)]
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.table({"img": pa.array(cells, kind), "label": [row % 10 for row in range(count)]})
        pq.write_table(table, folder / f"{part}.parquet")


def cifar_batches(folder):
    pixels = np.zeros((10, 3072), np.uint8)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        write(folder / name, pickle.dumps({"labels": list(range(10)), "data": pixels}, 2))


def fashion_idx(folder, end=""):
    pack = gzip.compress if end else bytes
    for part, count in (("train", 20), ("t10k", 10)):
        images = bytes([0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(count * 784)
        labels = bytes([0, 0, 8, 1, 0, 0, 0, count]) + bytes(row % 10 for row in range(count))
        write(folder / f"{part}-images-idx3-ubyte{end}", pack(images))
        write(folder / f"{part}-labels-idx1-ubyte{end}", pack(labels))


def own_folder(folder):
    for name in ("cat", "dog"):
        for number in range(5):
            write(folder / name / f"{number}.png", encoded("PNG", number))


def own_csv(folder):
    for number in range(6):
        write(folder / f"{number}.png", encoded("PNG", number))
    rows = [f"{number}.png,{number % 2}" for number in range(6)]
    write(folder / "list.csv", "\n".join(["image,label", *rows]))


FOLDERS = {
    "isic-2019": lambda folder: isic_folder(folder, [row % 8 for row in range(16)]),
    "rsna-ich": lambda folder: rsna_folder(folder, [0, 1] * 8),
    "cifar10": cifar_parquet,
    "cifar-10-batches-py": cifar_batches,
    "fashion-mnist": fashion_idx,
    "own": own_folder,
    "own-csv": own_csv,
}
NAMES = {"cifar-10-batches-py": "cifar10"}


@pytest.fixture
def data(tmp_path):
    for name, make in FOLDERS.items():
        make(tmp_path / "data" / name)
    return tmp_path / "data"


# Whole


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_whole_folder_has_no_fault(tmp_path, folder, deep):
    FOLDERS[folder](tmp_path / "data" / folder)
    report = report_of(NAMES.get(folder, folder), tmp_path / "data", deep)
    assert report.errors == ()
    assert report.place == tmp_path / "data" / folder
    inside = [path for path in report.place.rglob("*") if path.is_file()]
    assert (report.files, report.bytes) == (len(inside), sum(path.stat().st_size for path in inside))
    assert sum(report.images.values()) == sum(report.classes.values()) == sum(report.sizes.values())
    assert not (tmp_path / "cache").exists()


def test_images_classes_and_sizes_are_counted(tmp_path):
    isic_folder(tmp_path, [0] * 10 + [2] * 5)
    report = report_of("isic-2019", tmp_path)
    assert report.images == {"train": 12, "test": 3}
    assert {name: count for name, count in report.classes.items() if count} == {"MEL": 10, "BCC": 5}
    assert list(report.classes) == ["MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC"]
    assert report.sizes == {(24, 16): 15}
    assert any("25,331" in note for note in report.notes)


def test_digits_are_embedded(tmp_path):
    report = report_of("digits", tmp_path)
    assert report.errors == ()
    assert sum(report.classes.values()) == 1797


def test_whether_it_is_decoded_under_these_settings(data):
    assert report_of("isic-2019", data).decoded is None
    load(asking("isic-2019"), data)
    assert report_of("isic-2019", data).decoded.is_dir()
    assert report_of("isic-2019", data, image_size=32).decoded is None
    (data / "isic-2019" / INPUT / "ISIC_0000000.jpg").touch()
    assert report_of("isic-2019", data).decoded is None


def test_progress_counts_every_image(data):
    told = []
    report_of("isic-2019", data, progress=lambda *it: told.append(it))
    assert told == [(done, 16) for done in range(1, 17)]


# Empty, or not there


@pytest.mark.parametrize("name", ["isic-2019", "rsna-ich", "cifar10", "fashion-mnist", "ich-ct", "own"])
def test_an_empty_folder_is_named(tmp_path, name):
    (tmp_path / name).mkdir()
    assert error_of(name, tmp_path) == f"{tmp_path / name} is empty"


@pytest.mark.parametrize("name", ["isic-2019", "rsna-ich", "cifar10", "fashion-mnist", "ich-ct"])
def test_a_known_dataset_that_is_nowhere_is_told_where_it_was_looked_for(tmp_path, name):
    report = report_of(name, tmp_path / "data")
    assert report.place is None
    assert "not there" in report.errors[0]
    assert str(tmp_path / "data" / name) in report.errors[0]


def test_an_unknown_name_is_a_mistake_of_the_user(tmp_path):
    with pytest.raises(DataError, match="did you mean 'isic-2019'"):
        report_of("isic-2018", tmp_path)


def test_a_folder_of_something_else(tmp_path):
    write(tmp_path / "isic-2019" / "notes.txt", "hello")
    error = error_of("isic-2019", tmp_path)
    assert "notes.txt" in error
    assert ISIC_TABLE in error


def test_an_archive_that_is_still_packed_is_mentioned(data):
    archive = write(data / "isic-2019" / f"{INPUT}.zip", b"PK")
    assert not any(archive.name in note for note in report_of("isic-2019", data).notes)
    for path in (data / "isic-2019" / INPUT).iterdir():
        path.unlink()
    assert any(archive.name in note and "unpack" in note for note in report_of("isic-2019", data).notes)


# Half-copied


@pytest.mark.parametrize(
    ("name", "pattern"), [("isic-2019", f"{INPUT}/*.jpg"), ("rsna-ich", "stage_2_train/*.dcm"), ("own-csv", "*.png")]
)
def test_missing_images_are_counted_and_the_first_are_named(data, name, pattern):
    files = sorted((data / name).glob(pattern))
    for path in files[:2]:
        path.unlink()
    error = error_of(name, data)
    assert f"2 of {len(files)} images are missing" in error
    assert all(path.stem in error for path in files[:2])
    assert files[-1].stem not in error


def test_of_many_missing_images_a_few_are_named(data):
    for path in (data / "isic-2019" / INPUT).iterdir():
        path.unlink()
    error = error_of("isic-2019", data)
    assert "16 of 16 images are missing" in error
    assert error.count("ISIC_0") == 5
    assert "and 11 more" in error


def test_only_what_a_run_draws_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RSNA_IMAGES", 10)
    rsna_folder(tmp_path, [0, 1] * 20)
    drawn = {name for name, _ in published.RSNA.recognise(tmp_path, asking("rsna-ich")).read()[0].pictures()}
    for row in range(40):
        if rsna_name(row) not in drawn:
            (tmp_path / "stage_2_train" / f"{rsna_name(row)}.dcm").unlink()
    report = report_of("rsna-ich", tmp_path)
    assert report.errors == ()
    assert any("10 of the 40" in note and "data.seed = 0" in note for note in report.notes)
    assert "images are missing" in error_of("rsna-ich", tmp_path, seed=1)


@pytest.mark.parametrize(
    ("folder", "gone", "words"),
    [
        ("isic-2019", ISIC_TABLE, [ISIC_TABLE]),
        ("rsna-ich", "stage_2_train.csv", ["stage_2_train.csv"]),
        ("cifar10", "test.parquet", ["test part", "test*.parquet"]),
        ("cifar10", "train.parquet", ["train*.parquet is missing", "test.parquet"]),
        ("cifar-10-batches-py", "data_batch_3", ["data_batch_3 is missing"]),
        ("cifar-10-batches-py", "data_batch_1", ["data_batch_1 is missing"]),
        ("cifar-10-batches-py", "test_batch", ["test_batch is missing"]),
        ("fashion-mnist", "train-images-idx3-ubyte", ["train-images-idx3-ubyte is missing"]),
        ("fashion-mnist", "t10k-labels-idx1-ubyte", ["t10k-labels-idx1-ubyte is missing"]),
    ],
)
def test_a_missing_file_is_named(tmp_path, folder, gone, words):
    FOLDERS[folder](tmp_path / folder)
    (tmp_path / folder / gone).unlink()
    error = error_of(NAMES.get(folder, folder), tmp_path)
    assert all(word in error for word in [str(tmp_path / folder), *words])
    with pytest.raises(DataError):
        load(asking(NAMES.get(folder, folder)), tmp_path)


def test_a_missing_piece_of_a_parquet_file_in_several(data):
    folder = data / "cifar10"
    (folder / "train.parquet").rename(folder / "train-00000-of-00003.parquet")
    error = error_of("cifar10", data)
    assert "train-00001-of-00003.parquet, train-00002-of-00003.parquet are missing" in error


# Corrupt


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("cifar10", "train.parquet"),
        ("cifar10", "test.parquet"),
        ("cifar-10-batches-py", "data_batch_4"),
        ("fashion-mnist", "train-images-idx3-ubyte"),
        ("fashion-mnist", "t10k-labels-idx1-ubyte"),
        ("isic-2019", f"{INPUT}/ISIC_0000002.jpg"),
        ("rsna-ich", f"stage_2_train/{rsna_name(3)}.dcm"),
        ("own", "dog/2.png"),
        ("own-csv", "2.png"),
    ],
)
@pytest.mark.parametrize("damage", ["cut", "empty", "something else"])
def test_a_damaged_file_is_named_without_decoding(tmp_path, folder, file, damage):
    FOLDERS[folder](tmp_path / folder)
    path = tmp_path / folder / file
    if damage == "cut":
        cut(path)
    else:
        path.write_bytes(b"" if damage == "empty" else b"<html>please log in</html>")
    assert Path(file).stem in error_of(NAMES.get(folder, folder), tmp_path)


def test_a_packed_idx_file_that_breaks_off(tmp_path):
    fashion_idx(tmp_path / "fashion-mnist", ".gz")
    assert report_of("fashion-mnist", tmp_path).errors == ()
    cut(tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz")
    assert "train-images-idx3-ubyte.gz cannot be unpacked" in error_of("fashion-mnist", tmp_path)


def test_a_wrong_idx_header(data):
    path = data / "fashion-mnist" / "train-images-idx3-ubyte"
    path.write_bytes(b"\0\0\x0d\3" + path.read_bytes()[4:])
    assert f"{path} is not a whole idx file" in error_of("fashion-mnist", data)


@pytest.mark.parametrize("name", ["isic-2019", "rsna-ich", "own"])
def test_pixels_that_do_not_decode_are_found_by_deep_alone(data, name):
    path = next(path for path in sorted((data / name).rglob("*.*")) if path.suffix in (".jpg", ".dcm", ".png"))
    content = bytearray(path.read_bytes())
    if name == "rsna-ich":
        place = content.index(b"MONOCHROME2")
        content[place : place + 11] = b"MONOCHROME9"
    else:
        place = content.index({".jpg": b"\xff\xda", ".png": b"IDAT"}[path.suffix])
        content[place + 4 : place + 14] = bytes(10)
    path.write_bytes(content)
    assert report_of(name, data).errors == ()
    error = error_of(name, data, deep=True)
    assert "1 of" in error
    assert "unreadable" in error
    assert path.stem in error


def test_missing_and_unreadable_images_are_both_told(data):
    (data / "isic-2019" / INPUT / "ISIC_0000001.jpg").unlink()
    write(data / "isic-2019" / INPUT / "ISIC_0000002.jpg", b"no image")
    missing, unreadable = report_of("isic-2019", data).errors
    assert "1 of 16 images is missing: ISIC_0000001" in missing
    assert "1 of 16 images is unreadable: ISIC_0000002 (not an image of a known format)" in unreadable


@pytest.mark.parametrize(
    ("name", "table", "change", "words"),
    [
        ("isic-2019", ISIC_TABLE, lambda text: text.replace("BKL", "XXX"), ["no column BKL"]),
        ("isic-2019", ISIC_TABLE, lambda text: text[:-20], ["line 17"]),
        ("rsna-ich", "stage_2_train.csv", lambda text: text.replace("Label", "Value"), ["ID,Value"]),
        ("rsna-ich", "stage_2_train.csv", lambda text: text[:-6], ["line 103"]),
        ("own-csv", "list.csv", lambda text: text.replace("label", "class"), ["no column 'label'"]),
        ("own-csv", "list.csv", lambda text: text[:-2], ["line 7"]),
    ],
)
def test_a_damaged_table_is_named_with_its_column_or_line(data, name, table, change, words):
    path = data / name / table
    path.write_text(change(path.read_text()))
    error = error_of(name, data)
    assert all(word in error for word in [str(path), *words])


def test_without_pydicom_the_extra_is_named(data, monkeypatch):
    monkeypatch.setattr("fedpca.data.formats.dicom.find_spec", lambda name: None)
    assert "fedpca[medical]" in error_of("rsna-ich", data)


# The list


def test_states_of_the_known_and_of_the_users_own(data):
    (data / "ich-ct").mkdir()
    found = {name: (state, place) for name, state, place in states(data)}
    assert found["digits"] == ("embedded", None)
    assert found["isic-2019"] == ("there", data / "isic-2019")
    assert found["cifar10"] == ("there", data / "cifar10")
    assert found["ich-ct"] == found["isic2019-ham10000"] == ("missing", None)
    assert found["own"] == ("yours", data / "own")
