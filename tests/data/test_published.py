"""ISIC 2019 and RSNA's haemorrhages in the layouts in which they are published."""

import importlib.util
import os
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from fedpca.data.datasets import load
from fedpca.data.formats import published
from fedpca.data.formats.dicom import brain, slice_size
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings
from tests.data.made import ISIC_TABLE, isic_folder, isic_row, rsna_folder, rsna_name, rsna_rows, write, write_slice

MOST = 10_000  # pixels

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPCA_CACHE", str(tmp_path / "cache"))


def asking(dataset, **changes):
    return DataSettings(dataset=str(dataset), clients=2, **changes)


def shades(data):
    """Every image's brightness, in both parts, with its class."""
    images = np.concatenate([data.train.images[:, 0, 0, 0], data.test.images[:, 0, 0, 0]])
    labels = np.concatenate([data.train.labels, data.test.labels])
    return sorted(zip(images.tolist(), labels.tolist(), strict=True))


# ISIC 2019


@pytest.mark.parametrize("place", ["isic-2019", "ISIC_2019", "somewhere", "isic-2019/unpacked"])
@pytest.mark.parametrize("inner", ["ISIC_2019_Training_Input", "ISIC_2019_Training_Input/ISIC_2019_Training_Input"])
def test_isic_is_found_read_and_split_eight_to_two(tmp_path, place, inner):
    labels = [row % 8 for row in range(40)]
    isic_folder(tmp_path / place, labels, inner)
    data = load(asking("isic-2019"), data_dir=tmp_path)
    assert data.classes == CLASSES
    assert data.train.images.shape == (32, 3, 224, 224)
    assert np.bincount(data.test.labels).tolist() == [1] * 8
    assert shades(data) == [(4 * row, label) for row, label in enumerate(labels)]
    assert data.skipped == ()


def test_isic_by_path_and_at_another_size(tmp_path):
    isic_folder(tmp_path, [0, 1] * 5)
    assert load(asking(tmp_path, image_size=20)).train.images.shape == (8, 3, 20, 20)
    assert load(asking("isic-2019"), data_dir=tmp_path).train.images.shape == (8, 3, 224, 224)


@pytest.mark.parametrize(("listed", "there"), [("ISIC_1", "ISIC_1_downsampled"), ("ISIC_1_downsampled", "ISIC_1")])
def test_downsampled_may_be_in_the_table_the_file_name_or_both(tmp_path, listed, there):
    isic_folder(tmp_path, [0, 1] * 4)
    with (tmp_path / ISIC_TABLE).open("a") as file:
        file.write(isic_row(listed, 1) + "\n")
    write(tmp_path / "ISIC_2019_Training_Input" / f"{there}.jpg", jpeg((200, 200, 200)))
    assert (200, 1) in shades(load(asking(tmp_path)))


def jpeg(value, size=(24, 16)):
    file = BytesIO()
    Image.new("RGB", size, value).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("NV,", "NEVUS,"), ["no column NV", "NEVUS", "fetch it again"]),
        (lambda text: text[:-30], ["line 11", "MEL=", "exactly one"]),
        (lambda text: text + isic_row("ISIC_0000000", 8), ["line 12", "exactly one", "SCC=0.0"]),
        (lambda text: text.partition("\n")[0], ["no rows"]),
        (lambda text: "", ["no column image, MEL", "none"]),
    ],
    ids=["column", "cut", "unknown", "no rows", "empty"],
)
def test_an_isic_table_that_is_damaged(tmp_path, change, words):
    table = isic_folder(tmp_path, [0, 1] * 5) / ISIC_TABLE
    table.write_text(change(table.read_text()))
    with pytest.raises(DataError) as error:
        load(asking("isic-2019"), data_dir=tmp_path)
    assert all(word in str(error.value) for word in [ISIC_TABLE, *words])


def test_a_missing_table_is_named_and_its_images_are_not_taken_for_a_class(tmp_path):
    isic_folder(tmp_path / "isic-2019", [0, 1] * 5)
    (tmp_path / "isic-2019" / ISIC_TABLE).unlink()
    with pytest.raises(DataError, match=rf"isic-2019 holds no images.*must be {ISIC_TABLE}"):
        load(asking("isic-2019"), data_dir=tmp_path)
    with pytest.raises(DataError, match=r"rsna-ich is not there.*fedpca data check rsna-ich"):
        load(asking("rsna-ich"), data_dir=tmp_path)


# RSNA


@pytest.mark.parametrize("suffix", [".dcm", ".png"])
@pytest.mark.parametrize("inner", ["stage_2_train", "converted/brain"])
def test_rsna_is_read_from_dicom_or_png(tmp_path, suffix, inner):
    labels = [int(row % 3 == 0) for row in range(30)]
    rsna_folder(tmp_path / "rsna-ich", labels, suffix, inner)
    data = load(asking("rsna-ich"), data_dir=tmp_path)
    assert data.classes == ("no haemorrhage", "haemorrhage")
    assert data.train.images.shape == (24, 1, 224, 224)
    assert np.bincount(data.test.labels).tolist() == [4, 2]
    scale = 255 / 80 if suffix == ".dcm" else 1
    assert shades(data) == [(round(row * scale), label) for row, label in enumerate(labels)]


def test_the_archive_of_the_competition_may_be_unpacked_as_it_is(tmp_path):
    rsna_folder(tmp_path / "rsna-ich" / "rsna-intracranial-hemorrhage-detection", [0, 1] * 5)
    assert len(load(asking("rsna-ich"), data_dir=tmp_path).train.labels) == 8


def test_dicom_counts_where_there_is_png_too(tmp_path):
    rsna_folder(tmp_path, [0, 1] * 5, ".png", "a")
    rsna_folder(tmp_path, [0, 1] * 5, ".dcm", "b")
    assert shades(load(asking(tmp_path)))[-1] == (round(9 * 255 / 80), 1)


def test_as_many_as_in_the_paper_are_drawn_half_of_each_class_by_the_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RSNA_IMAGES", 20)
    rsna_folder(tmp_path, [int(row % 4 == 0) for row in range(80)])
    drawn = [shades(load(asking(tmp_path, seed=seed))) for seed in (0, 1, 0)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert [sum(label for _, label in some) for some in drawn] == [10, 10, 10]


def test_images_that_are_not_drawn_are_not_read_and_those_missing_do_not_change_the_draw(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RSNA_IMAGES", 20)
    rsna_folder(tmp_path, [int(row % 2) for row in range(40)])
    before = shades(load(asking(tmp_path)))
    names = {round(row * 255 / 80): rsna_name(row) for row in range(40)}
    taken = {names[shade] for shade, _ in before}
    for name in set(names.values()) - taken:
        write(tmp_path / "stage_2_train" / f"{name}.dcm", b"not DICOM")
    gone = min(taken)
    (tmp_path / "stage_2_train" / f"{gone}.dcm").unlink()
    data = load(asking(tmp_path))
    assert set(shades(data)) == {(shade, label) for shade, label in before if names[shade] != gone}
    assert [line.partition(":")[0] for line in data.skipped] == [gone]


def test_the_one_slice_that_is_published_broken_is_never_taken(tmp_path):
    table = rsna_folder(tmp_path, [0, 1] * 5) / "stage_2_train.csv"
    with table.open("a") as file:
        file.write("\n".join(rsna_rows("ID_6431af929", 1)))
    write(tmp_path / "stage_2_train" / "ID_6431af929.dcm", b"cut")
    data = load(asking(tmp_path))
    assert (len(data.train.labels) + len(data.test.labels), data.skipped) == (10, ())


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([0] * 30 + [1] * 30, 10), ([0] * 57 + [1] * 3, 3), ([0] * 5 + [1] * 55, 15)],
    ids=["enough", "few positive", "few negative"],
)
def test_a_class_too_small_for_its_half_is_taken_whole(labels, expected):
    listed = {rsna_name(row): label for row, label in enumerate(labels)}
    drawn = published._draw(listed, 20, seed=0)
    assert len(drawn) == len(set(drawn)) == 20
    assert sum(listed[name] for name in drawn) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: ["ID,label", *lines[1:]], ["ID,Label", "ID,label"]),
        (lambda lines: [*lines[:9], "ID_000000001_epidu", *lines[10:]], ["line 10", "'ID_000000001_epidu'"]),
        (lambda lines: [*lines, "ID_000000001_any,2"], ["ID_SUBTYPE,1", "'ID_000000001_any,2'"]),
        (lambda lines: [*lines, f"{rsna_name(0)}_any,1"], [f"{rsna_name(0)}_any,1", "earlier line says 0"]),
        (lambda lines: lines[:-2], [rsna_name(9), "1 lack some", "subdural"]),
        (lambda lines: lines[:1], ["there are none"]),
        (lambda lines: [], ["ID,Label", "nothing"]),
    ],
    ids=["columns", "cut line", "label", "contradiction", "cut between lines", "no rows", "empty"],
)
def test_an_rsna_table_that_is_damaged(tmp_path, change, words):
    table = rsna_folder(tmp_path, [0, 1] * 5) / "stage_2_train.csv"
    table.write_text("\n".join(change(table.read_text().splitlines())))
    with pytest.raises(DataError) as error:
        load(asking("rsna-ich"), data_dir=tmp_path)
    assert all(word in str(error.value) for word in ["stage_2_train.csv", *words])


def test_without_pydicom_the_extra_is_named_and_png_are_still_read(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("fedpca.data.formats.dicom.find_spec", lambda name: None if name == "pydicom" else find(name))
    rsna_folder(tmp_path / "dicom", [0, 1] * 5)
    rsna_folder(tmp_path / "png", [0, 1] * 5, ".png")
    with pytest.raises(DataError, match=r"pydicom.*fedpca\[medical\]"):
        load(asking(tmp_path / "dicom"))
    assert len(load(asking(tmp_path / "png")).train.labels) == 8


# DICOM

UNITS = np.array([[-1000, -50, 0, 10], [20, 40, 60, 79], [80, 81, 300, 1500], [1, 2, 3, 4]])
SHADES = np.rint(np.clip(UNITS, 0, 80) * 255 / 80)


@pytest.mark.parametrize(
    "how",
    [
        {"intercept": -1024},
        {"intercept": -1000, "slope": 0.5},
        {"intercept": 0, "signed": True},
        {"intercept": -1024, "bits": 12},
        {"intercept": 0, "bits": 12},
        {"intercept": 1, "bits": 12},
    ],
    ids=["usual", "slope", "signed", "12 bits", "12 bits wrapped", "12 bits wrapped, intercept"],
)
def test_a_slice_is_seen_through_the_brain_window_however_it_is_stored(tmp_path, how):
    np.testing.assert_array_equal(brain(write_slice(tmp_path / "a.dcm", UNITS, **how), MOST), SHADES)


def test_a_slice_that_breaks_off_is_told_by_its_length(tmp_path):
    path = write_slice(tmp_path / "a.dcm", np.zeros((20, 30)))
    assert slice_size(path, MOST) == (30, 20)
    os.truncate(path, path.stat().st_size - 2)
    with pytest.raises(ValueError, match=r"breaks off.*30x20.*1200.*1198"):
        slice_size(path, MOST)


# Large JPEG files


def test_a_large_jpeg_is_decoded_smaller_but_looks_the_same_and_a_small_one_is_the_same(tmp_path):
    coarse = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    folder = isic_folder(tmp_path, [0, 1] * 5) / "ISIC_2019_Training_Input"
    for side, tolerance in ((1024, 6), (480, 0)):
        for path in folder.iterdir():
            Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)
        whole = np.asarray(Image.open(path).resize((64, 64), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        difference = np.abs(load(asking(tmp_path, image_size=64)).train.images[0].astype(int) - whole)
        assert difference.max() <= tolerance
        assert bool(difference.max()) == bool(tolerance)
