import numpy as np
import pytest
import torch

from fedpca.data.cache import Dataset, Part
from fedpca.data.datasets import load
from fedpca.data.federation import federate, set_aside, split_rows
from fedpca.errors import DataError, SettingsError
from fedpca.runs.check import check_experiment


def experiment(**tables: object):
    table = {"data": {"clients": 20}, "model": {"name": "mlp"}, **tables}
    return check_experiment(table, "test")


def digits(**tables: object):
    settings = experiment(**tables)
    return federate(settings, load(settings.data))


def pixels(shard) -> torch.Tensor:
    return shard.x[torch.arange(len(shard.y))]


NOISY = {"rare": {"share": 0.2, "sigma": 0.5}, "noise": {"clients": 0.2, "labels": 0.8}}


def test_the_demos_federation():
    federation = digits(**NOISY)
    truth = federation.truth
    assert list(federation.shards) == [str(i) for i in range(20)]
    assert truth.rare == ("16", "17", "18", "19")
    assert len(truth.mislabeled) == 4
    assert not set(truth.mislabeled) & set(truth.rare)
    assert set(federation.tests) == {"common", "rare"}


def test_exactly_the_mislabeled_have_wrong_labels_and_exactly_so_many():
    federation = digits(**NOISY)
    for client, shard in federation.shards.items():
        wrong = int((shard.y != federation.truth.labels[client]).sum())
        expected = int(0.8 * len(shard.y) + 0.5) if client in federation.truth.mislabeled else 0
        assert wrong == expected


def test_exactly_the_rare_have_other_pixels():
    clean, spoiled = digits(), digits(**NOISY)
    for client in clean.shards:
        same = torch.equal(pixels(clean.shards[client]), pixels(spoiled.shards[client]))
        assert same == (client not in spoiled.truth.rare)
    assert torch.equal(pixels(clean.tests["common"]), pixels(spoiled.tests["common"]))
    assert not torch.equal(pixels(spoiled.tests["common"]), pixels(spoiled.tests["rare"]))
    assert torch.equal(spoiled.tests["common"].y, spoiled.tests["rare"].y)


def test_the_federation_depends_on_its_own_seed_and_not_on_the_training_seeds():
    one, same = digits(**NOISY, seeds=[0]), digits(**NOISY, seeds=[7, 8])
    other = digits(**{**NOISY, "data": {"clients": 20, "seed": 1}})
    for client in one.shards:
        assert torch.equal(pixels(one.shards[client]), pixels(same.shards[client]))
        assert torch.equal(one.shards[client].y, same.shards[client].y)
    assert any(
        len(one.shards[c].y) != len(other.shards[c].y) or not torch.equal(one.shards[c].y, other.shards[c].y)
        for c in one.shards
    )


def test_mixed_clients_keep_a_share_of_clean_images():
    clean = digits()
    mixed = digits(rare={"share": 0.1, "sigma": 0.5, "clean_share": 0.6})
    for client in mixed.truth.rare:
        before, after = pixels(clean.shards[client]), pixels(mixed.shards[client])
        untouched = (before == after).flatten(1).all(dim=1).float().mean()
        assert untouched == pytest.approx(0.6, abs=0.02)
    test = (pixels(mixed.tests["common"]) == pixels(mixed.tests["rare"])).flatten(1).all(dim=1)
    assert not test.any(), "the rare test group is corrupted as a whole"


def test_each_rare_client_may_keep_a_share_of_its_own():
    clean = digits()
    shares = [0.8, 0.6, 0.4, 0.2, 0.0]
    mixed = digits(rare={"share": 0.25, "sigma": 0.5, "clean_share": shares})
    assert len(mixed.truth.rare) == 5
    for client, share in zip(mixed.truth.rare, shares, strict=True):
        untouched = (pixels(clean.shards[client]) == pixels(mixed.shards[client])).flatten(1).all(dim=1).float().mean()
        assert untouched == pytest.approx(share, abs=0.02)
    for wrong in (shares, []):
        with pytest.raises(
            DataError,
            match=f"one share for all 4 rare clients, or one for each, got {len(wrong)}",
        ):
            digits(rare={"share": 0.2, "sigma": 0.5, "clean_share": wrong})


def test_one_share_for_all_rare_clients_is_the_same_as_a_list_of_it():
    one, listed = ({"share": 0.1, "sigma": 0.5, "clean_share": clean} for clean in (0.5, [0.5, 0.5]))
    for client, shard in digits(rare=one).shards.items():
        assert torch.equal(pixels(shard), pixels(digits(rare=listed).shards[client]))


VALIDATION = {"data": {"clients": 20, "validation_share": 0.2}, "evaluation": {"on": "validation"}}


def test_a_share_of_each_class_is_set_aside():
    labels = np.repeat([0, 1, 2], [100, 50, 4])
    kept, aside = set_aside(labels, 0.25, seed=0)
    assert sorted([*kept, *aside]) == list(range(154))
    assert np.bincount(labels[aside]).tolist() == [25, 13, 1]
    assert (np.diff(kept) > 0).all()
    assert (np.diff(aside) > 0).all()
    again, other = set_aside(labels, 0.25, seed=0)[1], set_aside(labels, 0.25, seed=1)[1]
    assert aside.tolist() == again.tolist() != other.tolist()
    assert [len(rows) for rows in set_aside(labels, 0.0, seed=0)] == [154, 0]


def images_of(federation) -> set[bytes]:
    return {image.numpy().tobytes() for shard in federation.shards.values() for image in pixels(shard)}


def test_validation_images_are_training_images_that_no_client_has():
    every, held = images_of(digits()), digits(**VALIDATION)
    validation = {image.numpy().tobytes() for image in pixels(held.tests["common"])}
    assert len(validation) > 250
    assert validation <= every
    assert not validation & images_of(held)
    assert sum(len(shard.y) for shard in held.shards.values()) + len(held.tests["common"].y) == 1438


def test_with_a_validation_share_clients_are_the_same_whatever_is_tested_on():
    test = digits(data=VALIDATION["data"], **NOISY)
    validation = digits(**VALIDATION, **NOISY)
    assert test.truth.mislabeled == validation.truth.mislabeled
    for client, shard in test.shards.items():
        assert torch.equal(pixels(shard), pixels(validation.shards[client]))
        assert torch.equal(shard.y, validation.shards[client].y)
    plain = digits(**NOISY)
    assert torch.equal(pixels(test.tests["rare"]), pixels(plain.tests["rare"])), "the test part is what it was"
    assert len(test.tests["common"].y) == 359 != len(validation.tests["common"].y)


def test_the_rare_validation_group_is_corrupted_and_labels_of_both_are_true():
    plain, held = digits(), digits(**VALIDATION, **NOISY)
    labels = {
        image.numpy().tobytes(): int(label)
        for client, shard in plain.shards.items()
        for image, label in zip(pixels(shard), plain.truth.labels[client], strict=True)
    }
    common, rare = held.tests["common"], held.tests["rare"]
    assert [labels[image.numpy().tobytes()] for image in pixels(common)] == common.y.tolist() == rare.y.tolist()
    assert not (pixels(common) == pixels(rare)).flatten(1).all(dim=1).any()


def test_validation_without_images_is_refused():
    with pytest.raises(SettingsError, match=r'evaluation.on = "validation" needs a data.validation_share above 0'):
        experiment(evaluation={"on": "validation"})
    with pytest.raises(DataError, match="0 validation images are of fewer than two classes"):
        digits(data={"clients": 4, "validation_share": 0.001}, evaluation={"on": "validation"})


def test_without_rare_clients_there_is_one_test_group():
    assert set(digits().tests) == {"common"}


def test_wrong_labels_may_lie_anywhere():
    everywhere = digits(rare={"share": 0.5}, noise={"clients": 1.0, "labels": 0.5, "where": "anywhere"})
    assert len(everywhere.truth.mislabeled) == 20
    with pytest.raises(DataError, match="10"):
        digits(rare={"share": 0.5}, noise={"clients": 0.6, "labels": 0.5})
    truth = digits(rare={"share": 0.25}, noise={"clients": 0.2, "labels": 0.5, "where": "evenly"}).truth
    assert len(truth.mislabeled) == 4
    assert len(set(truth.mislabeled) & set(truth.rare)) == 1


def test_limits_draw_a_part_of_the_images():
    federation = digits(data={"clients": 4, "train_images": 100, "test_images": 30})
    assert sum(len(shard.y) for shard in federation.shards.values()) == 100
    assert len(federation.tests["common"].y) == 30
    with pytest.raises(DataError, match=r"data.train_images = 99999, but there are only"):
        digits(data={"clients": 4, "train_images": 99999})


def test_dirichlet_covers_everything_with_uneven_sizes():
    federation = digits(data={"clients": 10, "split": "dirichlet", "alpha": 0.5})
    sizes = [len(shard.y) for shard in federation.shards.values()]
    assert sum(sizes) == sum(len(shard.y) for shard in digits().shards.values())
    assert max(sizes) > 1.5 * min(sizes)


def natural() -> Dataset:
    rng = np.random.default_rng(0)
    center = np.array(["vienna", "rosendahl", "vienna", "modern", "rosendahl", "modern"] * 5)
    part = Part(rng.integers(0, 255, (30, 1, 8, 8), dtype=np.uint8), np.arange(30) % 3, {"center": center})
    return Dataset("lesions", part, part, ("a", "b", "c"), ())


def test_natural_silos_keep_their_names():
    settings = experiment(data={"split": "column", "column": "center"})
    federation = federate(settings, natural())
    assert {client: len(shard.y) for client, shard in federation.shards.items()} == {
        "modern": 10, "rosendahl": 10, "vienna": 10,
    }  # fmt: skip


def test_a_silo_with_one_image_is_named():
    data = natural()
    center = data.train.columns["center"].copy()
    center[0] = "lonely"
    part = Part(data.train.images, data.train.labels, {"center": center})
    settings = experiment(data={"split": "column", "column": "center"})
    with pytest.raises(DataError, match="client 'lonely' has 1 training image"):
        federate(settings, Dataset("lesions", part, part, ("a", "b", "c"), ()))


def test_test_images_of_one_class_are_refused():
    with pytest.raises(DataError, match="1 test images are of fewer than two classes"):
        digits(data={"clients": 4, "test_images": 1})


def test_an_absent_column_is_named_with_those_that_are_there():
    settings = experiment(data={"split": "column", "column": "centre"})
    with pytest.raises(DataError, match=r"no column 'centre'; there are: center"):
        federate(settings, natural())


def test_given_sizes():
    settings = experiment(data={"split": "sizes", "sizes": [3, 7, 10]})
    rows = split_rows(settings.data, natural().train.labels, {}, batch=4)
    assert [len(own) for own in rows.values()] == [3, 7, 10]


def test_too_many_clients_for_the_images():
    with pytest.raises(DataError, match="fewer clients"):
        federate(experiment(data={"clients": 20}), natural())


def test_images_are_shared_and_not_copied():
    federation = digits()
    assert len({shard.x.store.data_ptr() for shard in federation.shards.values()}) == 1
