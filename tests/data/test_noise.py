import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.data.datasets import load
from fedpca.data.federation import federate
from fedpca.data.noise import NoiseKind, check_noise, flip, mislabeled_clients
from fedpca.errors import SettingsError
from fedpca.settings.base import rounded
from fedpca.settings.experiment import Experiment, NoiseSettings

CLIENTS = [f"c{number}" for number in range(10)]
labellings = st.integers(2, 6).flatmap(
    lambda classes: st.tuples(st.just(classes), st.lists(st.integers(0, classes - 1), min_size=1, max_size=60))
)
shares = st.floats(0, 1)
seeds = st.integers(0, 99)
kinds = st.sampled_from(["symmetric", "pair"])


def rng(seed=0):
    return np.random.default_rng(seed)


def test_symmetric_flips_give_the_published_example():
    noisy = flip([0, 1, 2, 3, 4, 0, 1, 2, 3, 4], 5, 0.6, rng())
    assert noisy.tolist() == [3, 1, 1, 1, 2, 0, 4, 2, 2, 4]


@given(labelling=labellings, share=shares, seed=seeds, kind=kinds)
def test_exclusive_flips_change_exactly_the_share(labelling, share, seed, kind):
    classes, labels = labelling
    noisy = flip(labels, classes, share, rng(seed), "exclusive", kind)
    assert noisy.dtype == np.int64
    assert ((noisy >= 0) & (noisy < classes)).all()
    assert (noisy != labels).sum() == rounded(share * len(labels))


@given(labelling=labellings, share=shares, seed=seeds, mode=st.sampled_from(["exclusive", "inclusive"]))
def test_pair_flips_lead_to_the_next_class(labelling, share, seed, mode):
    classes, labels = labelling
    noisy = flip(labels, classes, share, rng(seed), mode, "pair")
    changed = noisy != labels
    assert (noisy[changed] == (np.array(labels)[changed] + 1) % classes).all()


@pytest.mark.parametrize("mode", ["exclusive", "inclusive"])
@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_no_share_changes_nothing_and_the_given_labels_stay(mode, kind):
    labels = np.arange(50) % 7
    before = labels.copy()
    assert np.array_equal(flip(labels, 7, 0.0, rng(), mode, kind), before)
    noisy = flip(labels, 7, 1.0, rng(), mode, kind)
    assert np.array_equal(labels, before)
    assert not np.array_equal(noisy, before)


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_two_classes_are_inverted_at_full_share(kind):
    labels = rng(1).integers(0, 2, 200)
    assert np.array_equal(flip(labels, 2, 1.0, rng(), kind=kind), 1 - labels)


@pytest.mark.parametrize(
    ("classes", "share", "wrong"), [(2, 1, 0.5), (2, 0.8, 0.4), (10, 1, 0.9), (10, 0.6, 0.54), (8, 1, 0.875)]
)
def test_inclusive_flips_leave_some_right_by_luck(classes, share, wrong):
    labels = np.arange(40_000) % classes
    noisy = flip(labels, classes, share, rng(), "inclusive")
    assert (noisy != labels).mean() == pytest.approx(wrong, abs=0.01)


def test_symmetric_flips_spread_evenly_over_the_other_classes():
    noisy = flip(np.zeros(30_000, dtype=int), 4, 1.0, rng())
    assert np.bincount(noisy, minlength=4) / 30_000 == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=0.01)


def test_the_same_seed_gives_the_same_labels():
    labels = np.arange(100) % 5
    assert np.array_equal(flip(labels, 5, 0.5, rng(1)), flip(labels, 5, 0.5, rng(1)))
    assert not np.array_equal(flip(labels, 5, 0.5, rng(1)), flip(labels, 5, 0.5, rng(2)))


def test_one_class_has_no_wrong_label():
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        flip([0, 0], 1, 0.5, rng())


@pytest.mark.parametrize(
    ("number", "nearest"), [(0, 0), (0.49, 0), (0.5, 1), (1.5, 2), (2.5, 3), (0.145 * 100, 15), (0.29 * 100, 29)]
)
def test_halves_are_rounded_up(number, nearest):
    assert rounded(number) == nearest


@given(share=st.floats(0, 0.7), seed=seeds)
def test_mislabeled_clients_are_a_share_of_all_but_drawn_among_the_common(share, seed):
    rare = CLIENTS[-3:]
    chosen = mislabeled_clients(CLIENTS, rare, share, "common", rng(seed))
    assert len(set(chosen)) == len(chosen) == rounded(share * 10)
    assert not set(chosen) & set(rare)
    assert list(chosen) == [client for client in CLIENTS if client in chosen]


@pytest.mark.parametrize(("clients", "rare", "share", "count"), [(50, 5, 0.2, 10), (50, 5, 0.6, 30), (20, 4, 0.1, 2)])
def test_the_papers_groups_have_the_papers_sizes(clients, rare, share, count):
    ids = [str(number) for number in range(clients)]
    assert len(mislabeled_clients(ids, ids[-rare:], share, "common", rng())) == count


def test_anywhere_reaches_rare_clients_too():
    assert mislabeled_clients(CLIENTS, CLIENTS[-3:], 1.0, "anywhere", rng()) == tuple(CLIENTS)
    reached = {
        client for seed in range(30) for client in mislabeled_clients(CLIENTS, ["c9"], 0.2, "anywhere", rng(seed))
    }
    assert reached == set(CLIENTS)


def test_more_mislabeled_than_common_clients_says_how_many_there_are():
    with pytest.raises(
        ValueError, match=r"8 mislabeled clients .*0\.8 of 10.* only 7 may be .*'common'.*: lower the share"
    ):
        mislabeled_clients(CLIENTS, CLIENTS[-3:], 0.8, "common", rng())


def test_nobody_is_mislabeled_at_share_zero():
    assert mislabeled_clients(CLIENTS, CLIENTS, 0.0, "common", rng()) == ()


ZERO = NoiseKind("zero", "always the first class", lambda labels, classes, exclusive, rng: np.zeros_like(labels))


def test_a_kind_of_another_module_is_used():
    check_noise(NoiseSettings(kind=f"{__name__}:ZERO"))
    assert flip([1, 2, 1], 3, 1.0, rng(), kind=f"{__name__}:ZERO").tolist() == [0, 0, 0]


def the_bright_are_zero(data):
    """A kind that looks at images, and chooses by itself which labels become wrong."""
    bright = data.images.reshape(len(data.labels), -1).mean(axis=1) > 80

    def relabel(rows, share, mislabeled, rng):
        return np.where(bright[rows] & mislabeled, 0, data.labels[rows])

    return relabel


BRIGHT = NoiseKind("bright", "the first class where an image is bright", start=the_bright_are_zero)


def test_a_kind_of_another_module_may_look_at_images():
    noise = {"clients": 0.5, "labels": 0.1, "kind": f"{__name__}:BRIGHT"}
    experiment = Experiment(data={"clients": 4, "train_images": 400}, noise=noise)
    federation = federate(experiment, load(experiment.data))
    for client, shard in federation.shards.items():
        bright = shard.x[torch.arange(len(shard.y))].double().mean(dim=(1, 2, 3)) > 80
        wrong = bright & (federation.truth.labels[client] != 0) & (client in federation.truth.mislabeled)
        assert torch.equal(shard.y != federation.truth.labels[client], wrong)
    assert any(federation.truth.wrong_share.values())


def test_an_unknown_kind_is_refused():
    with pytest.raises(SettingsError, match=r"noise.kind: there is no noise kind 'pairs'.*'pair'"):
        check_noise(NoiseSettings(kind="pairs"))
