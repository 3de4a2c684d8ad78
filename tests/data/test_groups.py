"""Images of one patient are on one side of every split."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedpca.data import split
from fedpca.data.cache import Dataset, Part
from fedpca.data.datasets import load
from fedpca.data.federation import federate, set_aside, split_rows
from fedpca.data.groups import group_numbers, hold_out_groups
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment

PATIENTS = np.repeat(np.arange(60), [1, 2, 3, 4, 5, 6] * 10)  # 210 images
LABELS = PATIENTS % 3  # all of a patient's images are of one class


def rng(seed=0):
    return np.random.default_rng(seed)


def assert_together(*parts):
    """No patient is in two of these parts, and together they hold every image once."""
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(PATIENTS)))
    owners = [set(PATIENTS[rows].tolist()) for rows in parts]
    assert sum(map(len, owners)) == len(set().union(*owners))


def experiment(**tables):
    return check_experiment({"model": {"name": "mlp"}, **tables}, "test")


def patients(columns=None, test=None) -> Dataset:
    images = rng().integers(0, 255, (len(PATIENTS), 1, 8, 8), dtype=np.uint8)
    own = {"patient": PATIENTS.astype(np.str_)} if columns is None else columns
    part = Part(images, LABELS.astype(np.int64), own)
    return Dataset("patients", part, test or Part(images[:30], part.labels[:30], {}), ("a", "b", "c"), ())


def test_whole_patients_are_held_out_and_the_share_of_each_class_is_near():
    held = hold_out_groups(LABELS, PATIENTS, 0.2, rng())
    assert_together(np.flatnonzero(held), np.flatnonzero(~held))
    for label in range(3):
        assert 0.15 <= held[label == LABELS].mean() <= 0.2


@given(
    groups=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_any_groups_are_held_out_whole_and_every_class_keeps_one_to_train_on(groups, share, seed, data):
    numbers = np.unique(groups, return_inverse=True)[1]
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(groups), max_size=len(groups))))
    held = hold_out_groups(labels, numbers, share, rng(seed))
    assert all(len(set(held[numbers == group])) == 1 for group in set(numbers.tolist()))
    assert not held.all()
    assert held.any() or len(set(numbers.tolist())) <= len(set(labels.tolist()))


def test_validation_takes_whole_patients_and_needs_none_without_a_share():
    kept, aside = set_aside(LABELS, 0.25, 0, PATIENTS)
    assert_together(kept, aside)
    assert 0.15 < len(aside) / len(PATIENTS) <= 0.25
    assert len(set_aside(LABELS, 0.0, 0, PATIENTS)[1]) == 0


@pytest.mark.parametrize("how", ["iid", "dirichlet"])
def test_clients_share_no_patient(how):
    settings = experiment(data={"clients": 6, "split": how, "group_column": "patient"}).data
    rows = list(split_rows(settings, LABELS, {"patient": PATIENTS.astype(np.str_)}, batch=4).values())
    assert_together(*rows)
    if how == "iid":
        sizes = [len(own) for own in rows]
        assert max(sizes) - min(sizes) <= 6, "they differ by one patient at most"


def test_more_clients_than_patients_is_impossible():
    with pytest.raises(DataError, match=r"70 clients need at least 70 groups of data.group_column, but there are 60"):
        split.iid(len(PATIENTS), 70, rng(), PATIENTS)


def test_a_federation_of_patients():
    federation = federate(experiment(data={"clients": 4, "group_column": "patient"}), patients())
    assert_together(*(shard.x.rows.numpy() for shard in federation.shards.values()))


def test_given_sizes_cannot_be_kept():
    with pytest.raises(SettingsError, match=r"data.sizes cannot be kept where data.group_column keeps images together"):
        experiment(data={"split": "sizes", "sizes": [10, 20], "group_column": "patient"})


def test_a_column_that_is_absent_or_has_gaps_is_named():
    settings = experiment(data={"clients": 4, "group_column": "patient"})
    with pytest.raises(DataError, match=r"data.group_column: the data have no column 'patient'; there are: center"):
        federate(settings, patients({"center": PATIENTS.astype(np.str_)}))
    with pytest.raises(DataError, match=r"'patient' has no value in 2 of 3 rows, first in row 1"):
        group_numbers({"patient": ["a", "", ""]}, "patient")


def write_table(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("image", "label", "patient"), *rows])


@pytest.fixture
def folder(tmp_path):
    for row in range(len(PATIENTS)):
        Image.new("L", (4, 4), row).save(tmp_path / f"{row}.png")
    return tmp_path


def listed(rows):
    return [(f"{row}.png", f"class {LABELS[row]}", f"p{PATIENTS[row]}") for row in rows]


def loaded(folder, **changes):
    settings = experiment(data={"dataset": str(folder), "clients": 2, **changes}).data
    return load(settings, cache_dir=folder / "cache")


def test_a_test_part_that_is_split_off_shares_no_patient_with_training(folder):
    write_table(folder / "train.csv", listed(range(len(PATIENTS))))
    by_image, by_patient = loaded(folder), loaded(folder, group_column="patient")
    shared = [set(data.train.columns["patient"]) & set(data.test.columns["patient"]) for data in (by_image, by_patient)]
    assert shared[0]
    assert not shared[1]
    assert len(by_patient.train.labels) + len(by_patient.test.labels) == len(PATIENTS)
    assert 0.15 < len(by_patient.test.labels) / len(PATIENTS) <= 0.2


def test_a_test_part_that_shares_a_patient_with_training_is_refused(folder):
    write_table(folder / "train.csv", listed(range(150)))
    write_table(folder / "test.csv", listed(range(148, len(PATIENTS))))
    assert len(loaded(folder).test.labels) == len(PATIENTS) - 148
    with pytest.raises(DataError, match=r"train and test part share values of 'patient' \(1, first 'p43'\)"):
        loaded(folder, group_column="patient")


def test_a_test_part_that_is_split_off_has_a_share_of_every_client(folder):
    write_table(folder / "train.csv", listed(range(len(PATIENTS))))
    silos = {"dataset": str(folder), "split": "column", "column": "patient", "test_share": 0.2}
    data = load(experiment(data=silos).data, cache_dir=folder / "cache")
    for patient in range(60):
        parts = [int((part.columns["patient"] == f"p{patient}").sum()) for part in (data.train, data.test)]
        assert parts[1] == (1 if sum(parts) > 1 else 0), "one of up to seven; a single image is left to training"
