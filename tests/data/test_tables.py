"""Parquet files, CSV files and class folders, read from small files that the tests write."""

import csv
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedpca.data.formats.recognise import recognise
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings


def asking(**changes):
    return DataSettings(clients=2, **changes)


def read(place, **changes):
    layout = recognise(place, asking(**changes))
    assert layout is not None
    return layout.read()


def png(value=0, mode="L", size=(4, 4)):
    file = BytesIO()
    Image.new(mode, size, value).save(file, "PNG")
    return file.getvalue()


def write_png(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(value))


def write_csv(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_parquet(path, columns, metadata=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    pq.write_table(table.replace_schema_metadata(metadata) if metadata else table, path)


# Parquet


@pytest.mark.parametrize("folder", ["", "plain_text"])
def test_parquet_of_the_hub(tmp_path, folder):
    cells = [{"bytes": png(7), "path": "a.png"}, {"bytes": png(9), "path": None}]
    names = b'{"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}'
    table = {"img": cells, "label": [1, 0], "center": ["north", None], "age": [40, 50]}
    write_parquet(tmp_path / folder / "train-00000-of-00001.parquet", table, {b"huggingface": names})
    write_parquet(tmp_path / folder / "test-00000-of-00001.parquet", table)
    train, test = read(tmp_path)
    assert train.labels == [1, 0]
    assert train.classes == ("cat", "dog")
    assert train.columns == {"center": ["north", ""], "age": ["40", "50"]}
    assert [picture for _, picture in train.pictures()] == [png(7), png(9)]
    assert len(test.labels) == 2


def test_parquet_shards_follow_each_other(tmp_path):
    for shard in range(2):
        write_parquet(tmp_path / f"train-0000{shard}-of-00002.parquet", {"image": [png(shard)], "label": [shard]})
    train, test = read(tmp_path)
    assert test is None
    assert train.labels == [0, 1]
    assert [picture for _, picture in train.pictures()] == [png(0), png(1)]


def test_parquet_with_plain_bytes_names_and_an_empty_cell(tmp_path):
    write_parquet(tmp_path / "own.parquet", {"scan": [png(), None], "finding": ["ill", "well"]})
    train, _ = read(tmp_path / "own.parquet", image_column="scan", label_column="finding")
    assert train.labels == ["ill", "well"]
    assert [picture for _, picture in train.pictures()] == [png(), None]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"image": [png()], "class": [0]}, ["label", "image, class", "data.label_column"]),
        ({"photo": [png()], "label": [0]}, ["image", "photo, label", "data.image_column"]),
        ({"image": ["a.png"], "label": [0]}, ["image", "bytes", "string"]),
        ({"image": [png(), png()], "label": [0, None]}, ["label", "row 1", "nothing"]),
        ({"image": [png()], "label": [0.5]}, ["label", "row 0", "0.5"]),
    ],
)
def test_parquet_that_cannot_be_used(tmp_path, columns, words):
    write_parquet(tmp_path / "train.parquet", columns)
    with pytest.raises(DataError) as error:
        read(tmp_path)
    assert all(word in str(error.value) for word in [*words, "train.parquet"])


def test_parquet_that_is_empty(tmp_path):
    (tmp_path / "train.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"train\.parquet.*not a readable parquet"):
        read(tmp_path)


def test_damaged_parquet_pages_are_reported_with_the_file(tmp_path):
    path = tmp_path / "train.parquet"
    noise = [np.random.default_rng(row).bytes(2000) for row in range(50)]
    write_parquet(path, {"label": [0] * 50, "image": noise})
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[200:middle] = b"\xff" * (middle - 200)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"train\.parquet.*fetch it again"):
        list(read(tmp_path)[0].pictures())


# CSV


def test_csv_with_paths_names_and_further_columns(tmp_path):
    for name in ("a", "b"):
        write_png(tmp_path / "scans" / f"{name}.png")
    write_csv(tmp_path / "train.csv", ["image", "label", "center"], ["scans/a.png", "ill", "north"], ["b", "well", ""])
    train, test = read(tmp_path, image_root=None)
    assert test is None
    assert train.labels == ["ill", "well"]
    assert train.columns == {"center": ["north", ""]}
    assert [picture for _, picture in train.pictures()] == [tmp_path / "scans/a.png", tmp_path / "b"]


def test_csv_paths_start_at_the_image_root_and_may_lack_the_suffix(tmp_path):
    write_png(tmp_path / "elsewhere" / "a.png")
    write_csv(tmp_path / "list.csv", ["image", "label"], ["a", "0"], ["a.png", "1"])
    train, _ = read(tmp_path / "list.csv", image_root=tmp_path / "elsewhere")
    assert {picture for _, picture in train.pictures()} == {tmp_path / "elsewhere" / "a.png"}
    assert (
        tmp_path / "elsewhere" / "a.png"
        in recognise(tmp_path / "list.csv", asking(image_root=tmp_path / "elsewhere")).files
    )


def test_csv_with_one_column_per_class_as_isic_publishes_it(tmp_path):
    rows = [["ISIC_1", "0.0", "1.0"], ["ISIC_2", "1.0", "0.0"]]
    write_csv(tmp_path / "ISIC_2019_Training_GroundTruth.csv", ["image", "MEL", "NV"], *rows)
    for row in rows:
        write_png(tmp_path / "ISIC_2019_Training_Input" / f"{row[0]}.png")
    train, _ = read(tmp_path, label_column="MEL,NV", image_root=tmp_path / "ISIC_2019_Training_Input")
    assert train.labels == [1, 0]
    assert train.classes == ("MEL", "NV")
    assert all(picture.is_file() for _, picture in train.pictures())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,class\na.png,1\n", ["label", "image, class", "data.label_column"]),
        ("image,label\n", ["no rows"]),
        ("", ["image", "none", "data.image_column"]),
        ("image,label\na.png,1\nb.png,\n", ["label", "line 3", "nothing"]),
        ("image,label\n\xff", ["UTF-8"]),
    ],
)
def test_csv_that_cannot_be_used(tmp_path, text, words):
    (tmp_path / "own.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError) as error:
        read(tmp_path / "own.csv")
    assert all(word in str(error.value) for word in [*words, "own.csv"])


def test_one_hot_rows_need_exactly_one(tmp_path):
    write_csv(tmp_path / "own.csv", ["image", "A", "B"], ["a.png", "1", "1"])
    with pytest.raises(DataError, match=r"line 2.*exactly one.*A=1, B=1"):
        read(tmp_path / "own.csv", label_column="A,B")


# Folders by class


def test_images_by_class_with_a_test_part(tmp_path):
    for place in ("train/cat/1.png", "train/cat/2.PNG", "train/dog/1.png", "test/dog/1.png"):
        write_png(tmp_path / place)
    (tmp_path / "train/cat/notes.txt").write_text("not an image")
    train, test = read(tmp_path)
    assert train.classes == test.classes == ("cat", "dog")
    assert (train.labels, test.labels) == ([0, 0, 1], [1])


def test_numbered_class_folders_are_in_order_of_number(tmp_path):
    for name in ("10", "9", "1"):
        write_png(tmp_path / name / "a.png")
    assert read(tmp_path)[0].classes == ("1", "9", "10")


def test_class_folders_that_do_not_fit(tmp_path):
    for place in ("train/cat/1.png", "train/dog/1.png", "test/cow/1.png"):
        write_png(tmp_path / place)
    with pytest.raises(DataError, match=r"no class 'cow'.*cat, dog"):
        read(tmp_path)
    (tmp_path / "train" / "empty").mkdir()
    with pytest.raises(DataError, match=r"train/empty holds no image"):
        read(tmp_path)
