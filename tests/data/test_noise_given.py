"""Labels that people gave: each row's own after any subset and split, and clear words where they cannot be used."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedpca.core import Shard
from fedpca.data.datasets import Dataset, Part
from fedpca.data.federation import federate
from fedpca.data.noise import check_noise
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment, read_experiment
from fedpca.settings.experiment import Experiment, NoiseSettings

COUNT, CLASSES = 300, ("ant", "bee", "cat")
RNG = np.random.default_rng(7)
TRUE = RNG.integers(0, 3, COUNT)
COLUMNS = {
    "label": TRUE,
    "some": np.where(RNG.random(COUNT) < 0.1, (TRUE + 1) % 3, TRUE),
    "worst": np.where(RNG.random(COUNT) < 0.5, (TRUE + 2) % 3, TRUE),
}


def bugs() -> Dataset:
    """Images whose pixels spell the number of their row."""
    images = np.zeros((COUNT, 1, 4, 4), dtype=np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = np.arange(COUNT) // 256, np.arange(COUNT) % 256
    part = Part(images, TRUE.astype(np.int64), {"also": np.array([CLASSES[y] for y in COLUMNS["worst"]])})
    return Dataset("bugs", part, part, CLASSES, ())


def rows_of(shard: Shard) -> np.ndarray:
    """The rows of the data that a shard's images are."""
    pixels = shard.x[torch.arange(len(shard.y))][:, 0, 0, :2].numpy().astype(int)
    return 256 * pixels[:, 0] + pixels[:, 1]


def settings(noise: dict, evaluation: dict | None = None, **data: object) -> Experiment:
    noise = {"kind": "given", **noise}
    return Experiment(data={"clients": 5, "truth": "assumed", **data}, noise=noise, evaluation=evaluation or {})


def write(place: Path, columns: dict[str, object]) -> Path:
    place.parent.mkdir(exist_ok=True)
    if place.suffix == ".parquet":
        pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), place)
    elif place.suffix == ".npz":
        np.savez(place, **{name: np.array(values) for name, values in columns.items()})
    else:
        lines = zip(*columns.values(), strict=True)
        place.write_text("\n".join([",".join(columns), *(",".join(map(str, line)) for line in lines)]) + "\n")
    return place


NAMES = {name: [CLASSES[y] for y in values] for name, values in COLUMNS.items()}


@pytest.mark.parametrize("columns", [COLUMNS, NAMES], ids=["numbers", "names"])
@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
@pytest.mark.parametrize("data", [{}, {"train_images": 200, "validation_share": 0.2, "split": "dirichlet"}])
@pytest.mark.parametrize("others", [None, "some"])
def test_labels_are_the_files_row_by_row(tmp_path: Path, columns, suffix, data, others):
    file = write(tmp_path / f"people.{suffix}", columns)
    chosen = settings({"clients": 0.4, "file": str(file), "column": "worst", "others": others}, **data)
    federation = federate(chosen, bugs())
    assert len(federation.truth.mislabeled) == 2
    for client, shard in federation.shards.items():
        rows, column = rows_of(shard), "worst" if client in federation.truth.mislabeled else others or "label"
        assert np.array_equal(shard.y.numpy(), COLUMNS[column][rows])
        assert np.array_equal(federation.truth.labels[client].numpy(), TRUE[rows])
        wrong = (COLUMNS[column] != TRUE)[rows].mean()
        assert federation.truth.wrong_share[client] == pytest.approx(wrong)


def test_images_that_are_set_aside_keep_their_true_labels(tmp_path: Path):
    file = write(tmp_path / "people.csv", COLUMNS)
    noise = {"clients": 1.0, "file": str(file), "column": "worst"}
    chosen = settings(noise, {"on": "validation"}, validation_share=0.2)
    shard = federate(chosen, bugs()).tests["common"]
    assert np.array_equal(shard.y.numpy(), TRUE[rows_of(shard)])


def test_a_name_is_a_folder_in_the_data_folder(tmp_path: Path):
    write(tmp_path / "bugs-by-people" / "train.parquet", COLUMNS)
    chosen = settings({"clients": 1.0, "file": "bugs-by-people", "column": "worst"})
    for shard in federate(chosen, bugs(), tmp_path).shards.values():
        assert np.array_equal(shard.y.numpy(), COLUMNS["worst"][rows_of(shard)])


def test_without_a_file_the_columns_are_the_datas_own():
    for shard in federate(settings({"clients": 1.0, "column": "also"}), bugs()).shards.values():
        assert np.array_equal(shard.y.numpy(), COLUMNS["worst"][rows_of(shard)])


def test_everybody_may_have_the_column_of_the_others(tmp_path: Path):
    file = write(tmp_path / "people.csv", COLUMNS)
    federation = federate(settings({"file": str(file), "others": "some"}), bugs())
    assert federation.truth.mislabeled == ()
    assert all(np.array_equal(shard.y, COLUMNS["some"][rows_of(shard)]) for shard in federation.shards.values())


def test_a_path_is_relative_to_the_settings_file(tmp_path: Path):
    write(tmp_path / "people.csv", COLUMNS)
    (tmp_path / "own.toml").write_text(
        '[noise]\nkind = "given"\nclients = 0.2\nfile = "people.csv"\ncolumn = "worst"\n'
    )
    assert read_experiment(tmp_path / "own.toml").noise.file == str(tmp_path / "people.csv")
    assert read_experiment(tmp_path / "own.toml", ["noise.file=cifar10n"]).noise.file == "cifar10n"


LONGER = {name: [*values, 0] for name, values in COLUMNS.items()}


@pytest.mark.parametrize(
    ("columns", "noise", "message"),
    [
        (LONGER, {}, r"a row for each of the 300 rows of the training part, in their order, got 301 rows"),
        (
            COLUMNS,
            {"column": "wurst"},
            r"noise\.column: .*people\.csv has no column 'wurst' \(did you mean 'worst'\?\)",
        ),
        (COLUMNS, {"others": "best"}, r"noise\.others: .* has no column 'best'; there are label, some, worst"),
        ({"worst": [3] * COUNT}, {}, r"'3' in column 'worst' is not a class \(row 0\).*ant, bee, cat.* from 0 to 2"),
        ({"worst": [-1] * COUNT}, {}, r"'-1' in column 'worst' is not a class"),
        ({"worst": [1.5] * COUNT}, {}, r"'1\.5' in column 'worst' is not a class"),
        ({**COLUMNS, "label": (TRUE + 1) % 3}, {}, r"its column 'label' must equal their labels, but 300 of 300 rows"),
        (COLUMNS, {"file": "nowhere.csv"}, r"noise\.file: there is no 'nowhere\.csv'.*looked for .*FEDPCA_DATA"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, columns, noise, message):
    file = write(tmp_path / "people.csv", columns)
    chosen = settings({"clients": 0.4, "file": str(file), "column": "worst", **noise})
    with pytest.raises(DataError, match=message):
        federate(chosen, bugs())


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    (tmp_path / "people.pt").write_bytes(b"\x80")
    with pytest.raises(DataError, match=r"people\.pt must be one of \.parquet, \.csv, \.npz, got \.pt"):
        federate(settings({"clients": 0.4, "file": str(tmp_path / "people.pt"), "column": "worst"}), bugs())


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (
            {"clients": 0.4, "column": "worst", "labels": 0.4},
            "noise.labels = 0.4, but the column 'worst' has the labels",
        ),
        (
            {"clients": 0.4, "column": "worst", "others_labels": 0.1},
            "noise.others_labels = 0.1, but the column 'worst'",
        ),
        ({"column": "worst"}, "noise.clients = 0.0 and noise.column = 'worst': give both, or neither"),
        ({"clients": 0.4}, "takes labels from a column: set noise.column"),
        ({"clients": 0.4, "labels": 0.4}, "takes labels from a column: set noise.column"),
        ({"clients": 0.4, "column": "worst", "kind": "pair"}, "noise.column means nothing to noise.kind = 'pair'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(noise, message):
    with pytest.raises(SettingsError, match=message):
        check_experiment({"noise": {"kind": "given", **noise}}, "own.toml")


def test_columns_of_the_kind_need_not_be_there_without_noise():
    check_noise(NoiseSettings(kind="given"))
