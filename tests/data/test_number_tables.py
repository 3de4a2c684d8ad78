"""Tables of numbers and categories: read from small files, standardised by sums, trained on like images."""

import csv
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedpca.data.columns import Column
from fedpca.data.datasets import Dataset, load
from fedpca.data.federation import federate
from fedpca.data.standardise import add_sums, encode, encoding_of, sums_of
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment
from fedpca.settings.experiment import DataSettings, Experiment

DATA = Path(os.environ.get("FEDPCA_DATA", "."))
HEADER = ["center", "age", "pain", "ca", "label"]


def rows_of(count: int = 60) -> list[list[object]]:
    """Three centers; the label follows the age; one center never measured `ca`."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(count):
        center = ("east", "north", "west")[number % 3]
        age = float(rng.integers(30, 80))
        pain = ("none", "typical", "?")[int(rng.integers(3))]
        ca: object = "" if center == "west" else round(float(rng.normal()), 3)
        rows.append([center, age, pain, ca, int(age > 55)])
    return rows


def write_csv(path: Path, rows: list[list[object]], header: list[str] = HEADER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_parquet(path: Path, rows: list[list[object]]) -> Path:
    columns = {
        name: [None if row[number] in ("", "?") else row[number] for row in rows] for number, name in enumerate(HEADER)
    }
    pq.write_table(pa.table(columns), path)
    return path


def read(path: Path, **changes: object) -> Dataset:
    return load(DataSettings(**{"dataset": str(path), "clients": 2, **changes}))


def experiment(path: Path, **tables: dict[str, object]) -> Experiment:
    data = {"dataset": str(path), "split": "column", "column": "center", **tables.pop("data", {})}
    plain = {"rounds": 4, "seeds": [0], "model": {"name": "mlp"}, "training": {"batch": 16}, "data": data}
    return check_experiment({**plain, **tables}, "test")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "hospitals.csv", rows_of())


def test_a_csv_without_images_is_a_table(table: Path):
    data = read(table, column="center")
    assert data.table == (Column("age"), Column("pain", ("none", "typical")), Column("ca"))
    assert data.train.images.shape == (48, 3, 1, 1)
    assert data.classes == ("0", "1")
    assert set(data.train.columns["center"]) == {"east", "north", "west"}


def test_a_column_that_is_not_the_clients_is_a_feature(table: Path):
    assert read(table).table[0] == Column("center", ("east", "north", "west"))


def test_columns_with_another_use_are_no_features(table: Path):
    found = read(table, column="center", group_column="age", truth_column="ca").table
    assert [column.name for column in found] == ["pain"]


def test_csv_parquet_and_a_folder_of_two_parts_hold_the_same(tmp_path: Path, table: Path):
    rows = rows_of()
    ours = read(table, column="center")
    theirs = read(write_parquet(tmp_path / "hospitals.parquet", rows), column="center")
    assert theirs.table == ours.table
    np.testing.assert_array_equal(theirs.train.images, ours.train.images)
    write_csv(tmp_path / "two" / "train.csv", rows[:40])
    write_csv(tmp_path / "two" / "test.csv", rows[40:])
    parts = read(tmp_path / "two", column="center")
    assert (len(parts.train.labels), len(parts.test.labels)) == (40, 20)
    np.testing.assert_array_equal(parts.test.images[:, 0, 0, 0], [row[1] for row in rows[40:]])


def test_npz_of_rows_is_a_table(tmp_path: Path):
    x, y = np.arange(40.0).reshape(10, 4), np.arange(10) % 2
    x[3, 2] = np.nan
    np.savez(tmp_path / "own.npz", x=x, y=y, x_test=x[:4] + 1, y_test=y[:4])
    data = read(tmp_path / "own.npz")
    assert data.table == tuple(Column(str(number)) for number in range(4))
    np.testing.assert_array_equal(data.train.images[:, :, 0, 0], x)
    assert len(data.test.labels) == 4
    assert [column.name for column in read(tmp_path / "own.npz", feature_columns=["2", "0"]).table] == ["2", "0"]


@pytest.mark.parametrize("missing", ["", "?", "NaN", "nan", "NA"])
def test_cells_without_a_value(tmp_path: Path, missing: str):
    rows = [[1.5, "a", 0], [missing, missing, 1], [3, "b", 0], [4, "b", 1]]
    write_csv(tmp_path / "train.csv", rows, ["height", "kind", "label"])
    write_csv(tmp_path / "test.csv", rows, ["height", "kind", "label"])
    data = read(tmp_path)
    assert data.table == (Column("height"), Column("kind", ("a", "b")))
    np.testing.assert_array_equal(data.train.images[:, :, 0, 0], [[1.5, 0], [np.nan, np.nan], [3, 1], [4, 1]])


def test_one_label_column_for_each_class(tmp_path: Path):
    rows = [[number, number % 2, 1 - number % 2] for number in range(10)]
    data = read(write_csv(tmp_path / "own.csv", rows, ["height", "ill", "well"]), label_column="ill,well")
    assert data.classes == ("ill", "well")
    assert [column.name for column in data.table] == ["height"]


def test_what_a_table_may_not_hold(tmp_path: Path, table: Path):
    with pytest.raises(DataError, match=r"no column 'outcome'.*center, age.*data\.label_column"):
        read(table, label_column="outcome")
    with pytest.raises(DataError, match=r"no column 'height'.*data\.feature_columns"):
        read(table, feature_columns=["height"])
    with pytest.raises(DataError, match=r"'label' holds the labels"):
        read(table, feature_columns=["age", "label"])
    rows = [[f"patient {number}", number % 2] for number in range(200)]
    with pytest.raises(DataError, match=r"'name': 200 different texts.*data\.feature_columns.*data\.image_column"):
        read(write_csv(tmp_path / "names.csv", rows, ["name", "label"]))
    rows = [[number if number else "inf", number % 2] for number in range(10)]
    with pytest.raises(DataError, match=r"'height', row 0: numbers must be finite"):
        read(write_csv(tmp_path / "inf.csv", rows, ["height", "label"]))
    with pytest.raises(DataError, match=r"a table needs one feature"):
        read(write_csv(tmp_path / "bare.csv", [[0], [1]], ["label"]))


def test_a_list_of_image_files_is_not_taken_for_a_table(tmp_path: Path):
    path = write_csv(tmp_path / "own.csv", [["a.png", 0], ["b.png", 1]], ["file", "label"])
    with pytest.raises(DataError, match=r"no column 'image'.*data\.image_column"):
        read(path)


# Standardising


def test_statistics_from_sums_are_those_of_all_rows_together():
    rng = np.random.default_rng(1)
    columns = (Column("a"), Column("kind", ("x", "y", "z")), Column("b"))
    values = np.column_stack([rng.normal(70, 9, 90), rng.integers(0, 3, 90), rng.normal(-3, 0.1, 90)])
    values[rng.random((90, 3)) < 0.2] = np.nan
    parts = [sums_of(values[rows], columns) for rows in np.split(np.arange(90), [10, 11, 50])]
    encoding = encoding_of([column.name for column in columns], add_sums(parts))
    for number in (0, 2):
        assert encoding[number].mean == pytest.approx(np.nanmean(values[:, number]))
        assert encoding[number].deviation == pytest.approx(np.nanstd(values[:, number]))
    inputs = encode(encoding, columns, values)
    names = [name for column in encoding for name in column.names]
    assert names == ["a", "a missing", "kind=x", "kind=y", "kind=z", "kind missing", "b", "b missing"]
    assert inputs.shape == (90, 8, 1, 1)
    assert inputs.dtype == np.float32
    missing = np.isnan(values[:, 0])
    assert (inputs[missing, 0] == 0).all()  # the mean
    np.testing.assert_array_equal(inputs[:, 1, 0, 0], missing)
    np.testing.assert_array_equal(inputs[:, 2:6].sum(axis=(1, 2, 3)), 1)
    assert np.isfinite(inputs).all()


def test_levels_of_all_clients_are_united_and_others_count_as_missing():
    columns = (Column("kind", ("a", "b", "c")),)
    clients = [sums_of(np.array([[0.0], [0.0]]), columns), sums_of(np.array([[2.0], [np.nan]]), columns)]
    encoding = encoding_of(["kind"], add_sums(clients))
    assert encoding[0].levels == ("a", "c")
    inputs = encode(encoding, columns, np.array([[0.0], [1.0], [2.0], [np.nan]]))
    np.testing.assert_array_equal(inputs[:, :, 0, 0], [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]])


def test_a_constant_column_and_one_that_is_never_filled_in_stay_finite():
    columns = (Column("year"), Column("empty"))
    values = np.column_stack([np.full(7, 2026.1), np.full(7, np.nan)])
    inputs = encode(encoding_of(["year", "empty"], add_sums([sums_of(values, columns)])), columns, values)
    np.testing.assert_allclose(inputs[:, :, 0, 0], np.tile([0, 0, 1], (7, 1)), atol=1e-6)


def test_only_the_rows_that_clients_train_on_count(table: Path):
    settings = experiment(table, data={"validation_share": 0.2})
    data = load(settings.data)
    federation = federate(settings, data)
    own = torch.cat([shard.x[torch.arange(len(shard.y))] for shard in federation.shards.values()])
    assert federation.shape == (len([name for column in federation.table for name in column.names]), 1, 1)
    assert own[:, 0].mean() == pytest.approx(0, abs=1e-6)
    assert own[:, 0].std(correction=0) == pytest.approx(1, abs=1e-6)
    assert own.dtype == torch.float32


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"rare": {"share": 0.4}}, "rare by corruption is for images"),
        ({"training": {"augment": "crop-flip"}}, "augmentation is for images"),
        ({"model": {"name": "mlp", "backbone": "efficientnet-lite0"}}, "backbones are for images"),
        ({"model": {"name": "cnn-small"}}, r"model\.name = 'cnn-small'.*linear, mlp"),
    ],
)
def test_what_is_for_images_is_refused(table: Path, tables: dict[str, dict[str, object]], words: str):
    settings = experiment(table, **tables)
    with pytest.raises(SettingsError, match=words) as error:
        federate(settings, load(settings.data))
    assert "is a table of numbers" in str(error.value)


def test_a_site_may_lack_levels_that_others_have():
    """Each site knows the texts of its own rows alone, and gets the inputs that it would get among all rows."""
    everybody, own = Column("kind", ("a", "b", "c")), Column("kind", ("b", "z"))
    (encoding,) = encoding_of(["kind"], add_sums([sums_of(np.array([[0.0], [1.0], [2.0], [np.nan]]), (everybody,))]))
    expected = encoding.encode(np.array([1.0, np.nan, np.nan]), everybody)
    np.testing.assert_array_equal(encoding.encode(np.array([0.0, 1.0, np.nan]), own), expected)
    assert encoding.encode(np.array([np.nan]), Column("kind")).tolist() == [[0, 0, 0, 1]], "no text at all"


def test_names_of_columns_may_be_one_text():
    assert DataSettings(clients=2, feature_columns="age, pain").feature_columns == ("age", "pain")


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_DATA" not in os.environ, reason="needs FEDPCA_DATA with heart-disease in it")
def test_the_real_hospitals():
    if not (DATA / "heart-disease").is_dir():
        pytest.skip("there is no heart-disease in FEDPCA_DATA")
    settings = experiment(DATA / "heart-disease")
    federation = federate(settings, load(settings.data))
    assert list(federation.shards) == ["cleveland", "hungarian", "switzerland", "va"]
    assert len(federation.table) == 13
    assert sum(len(shard.y) for shard in federation.shards.values()) in range(700, 921)
