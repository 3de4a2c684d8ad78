"""Test groups: by kind, by client, by a column; and those that are too small to count."""

from collections import Counter

import numpy as np
import pytest
import torch

from fedpca.data.cache import Dataset, Part
from fedpca.data.datasets import load
from fedpca.data.federation import federate
from fedpca.data.held_out import MIN_IMAGES, hold_out_own, why_not_counted
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment

SILOS = {"split": "column", "column": "hospital"}


def experiment(**tables):
    return check_experiment({"model": {"name": "mlp"}, **tables}, "test")


def part(sizes, first=0, classes=3, **columns) -> Part:
    """So many images of each hospital, all different, with as many of each class as possible."""
    count = sum(sizes.values())
    images = (first + np.arange(count))[:, None] // np.array([256, 1]) % 256
    images = np.repeat(images.astype(np.uint8), 32, axis=1).reshape(count, 1, 8, 8)
    hospital = np.array([name for name, size in sizes.items() for _ in range(size)])
    return Part(images, np.arange(count) % classes, {"hospital": hospital, **columns})


def federation_of(train, test, **tables):
    settings = experiment(**{"data": SILOS, **tables})
    return federate(settings, Dataset("silos", train, test, ("a", "b", "c"), ()))


TRAIN = {"Berlin": 60, "Bonn": 90, "Köln": 120}
TEST = {"Berlin": 30, "Bonn": 20, "Köln": 45}


def pixels(shard) -> list[bytes]:
    return [image.numpy().tobytes() for image in shard.x[torch.arange(len(shard.y))]]


def test_natural_silos_are_tested_each_on_its_own_rows_of_the_test_part():
    federation = federation_of(part(TRAIN), part(TEST, first=1000))
    assert {name: len(test.y) for name, test in federation.tests.items()} == TEST
    assert federation.uncounted == {}
    images = part(TEST, first=1000).images
    assert pixels(federation.tests["Bonn"]) == [image.tobytes() for image in images[30:50]]
    assert {name: len(shard.y) for name, shard in federation.shards.items()} == TRAIN


def test_by_kind_is_what_it_was_and_still_there_for_silos():
    federation = federation_of(part(TRAIN), part(TEST), evaluation={"groups": "kind"})
    assert {name: len(test.y) for name, test in federation.tests.items()} == {"common": 95}
    digits = experiment(data={"clients": 4}, rare={"share": 0.25, "sigma": 0.5})
    by_default = federate(digits, load(digits.data))
    assert list(by_default.tests) == ["common", "rare"]


def test_where_the_test_part_does_not_say_whose_it_is_each_client_holds_out_its_share():
    unknown = Part(part(TEST).images, part(TEST).labels, {})
    federation = federation_of(part(TRAIN), unknown, data={**SILOS, "test_share": 0.25})
    for name, size in TRAIN.items():
        trained, tested = pixels(federation.shards[name]), pixels(federation.tests[name])
        assert len(trained) + len(tested) == size
        assert not set(trained) & set(tested)
        assert len(tested) == pytest.approx(0.25 * size, abs=3)
        assert set(Counter(federation.tests[name].y.tolist()).values()) in ({5}, {8}, {10}), "of each class alike"
        assert len(federation.truth.labels[name]) == len(trained)


def test_clients_of_any_split_may_be_tested_on_their_own():
    settings = experiment(data={"clients": 5}, evaluation={"groups": "client"})
    federation = federate(settings, load(settings.data))
    assert list(federation.tests) == list(federation.shards) == ["0", "1", "2", "3", "4"]
    every = [image for shard in (*federation.shards.values(), *federation.tests.values()) for image in pixels(shard)]
    assert len(every) == 1438, "the training part, once"


def test_a_rare_client_is_tested_on_corrupted_images_and_a_mislabeled_one_on_true_labels():
    noise = {"rare": {"share": 0.2, "sigma": 0.5}, "noise": {"clients": 0.2, "labels": 1.0}}
    own = {"data": {"clients": 5}, "evaluation": {"groups": "client"}}
    clean, spoiled = (
        federate(settings, load(settings.data)) for settings in (experiment(**own), experiment(**own, **noise))
    )
    for name, test in spoiled.tests.items():
        assert torch.equal(test.y, clean.tests[name].y)
        assert (pixels(test) == pixels(clean.tests[name])) == (name not in spoiled.truth.rare)


def test_whole_patients_are_held_out():
    patients, labels = np.repeat(np.arange(40), 5), np.repeat(np.arange(40), 5) % 2
    rows = {"a": np.arange(0, 100), "b": np.arange(100, 200)}
    kept, held = hold_out_own(rows, labels, patients, 0.2, seed=0)
    for client, own in rows.items():
        assert sorted([*kept[client], *held[client]]) == own.tolist()
        assert not set(patients[kept[client]]) & set(patients[held[client]])
        assert len(held[client]) == 20


def test_groups_by_any_column():
    scanner = np.array(["x", "y", ""] * 32)[:95]
    federation = federation_of(
        part(TRAIN), part(TEST, classes=2, scanner=scanner), evaluation={"groups": "column", "group_column": "scanner"}
    )
    assert {name: len(test.y) for name, test in federation.tests.items()} == {"x": 32, "y": 32, "no value": 31}
    with pytest.raises(DataError, match=r"evaluation.group_column: the data have no column 'age'; there are: hospital"):
        federation_of(part(TRAIN), part(TEST), evaluation={"groups": "column", "group_column": "age"})


def test_a_group_that_is_too_small_is_named_and_not_counted():
    test = part({"Berlin": 9, "Bonn": 20})
    federation = federation_of(part({**TRAIN, "Ulm": 12}), test)
    assert list(federation.tests) == ["Bonn"]
    assert federation.uncounted == {
        "Berlin": "9 images, fewer than 10",
        "Köln": "no images, fewer than 10",
        "Ulm": "no images, fewer than 10",
    }


def test_a_group_of_one_class_is_named_and_not_counted():
    test = part(TEST)
    labels = np.where(test.columns["hospital"] == "Köln", 2, test.labels)
    federation = federation_of(part(TRAIN), Part(test.images, labels, test.columns))
    assert federation.uncounted == {"Köln": "all 45 images are of one class"}
    assert list(federation.tests) == ["Berlin", "Bonn"]


def test_how_many_images_count():
    assert why_not_counted(np.arange(MIN_IMAGES) % 2) is None
    assert why_not_counted(np.arange(MIN_IMAGES - 1) % 2) == "9 images, fewer than 10"
    assert why_not_counted(np.array([1])) == "1 image, fewer than 10"


TINY = {"Berlin": 4, "Bonn": 5, "Köln": 6}


def test_if_no_group_counts_all_images_are_one_group():
    federation = federation_of(part(TRAIN), part(TINY))
    assert {name: len(test.y) for name, test in federation.tests.items()} == {"common": 15}
    assert list(federation.uncounted) == ["Berlin", "Bonn", "Köln"]
    own = federation_of(part({"Berlin": 20, "Bonn": 24}), Part(part(TINY).images, part(TINY).labels, {}))
    assert list(own.tests) == ["common"]
    assert len(own.tests["common"].y) + sum(len(shard.y) for shard in own.shards.values()) == 44


def test_if_clients_were_asked_for_and_none_counts_it_is_an_error_that_says_what_to_do():
    with pytest.raises(DataError, match=r"no test group is large enough to count \(Berlin: 4 images.*data.test_share"):
        federation_of(part(TRAIN), part(TINY), evaluation={"groups": "client"})


def test_validation_images_are_grouped_by_their_column():
    federation = federation_of(
        part(TRAIN), part(TEST), data={**SILOS, "validation_share": 0.3}, evaluation={"on": "validation"}
    )
    assert list(federation.tests) == ["Berlin", "Bonn", "Köln"]
    assert sum(len(test.y) for test in federation.tests.values()) == 81


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"evaluation": {"groups": "column"}}, "needs evaluation.group_column"),
        ({"evaluation": {"group_column": "age"}}, "and only that uses it"),
        (
            {"evaluation": {"groups": "client", "on": "validation"}, "data": {"clients": 4, "validation_share": 0.1}},
            "validation images are of no client",
        ),
    ],
)
def test_settings_that_do_not_fit(tables, words):
    with pytest.raises(SettingsError, match=words):
        experiment(**tables)
