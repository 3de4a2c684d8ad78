from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpca.data import split


def rng(seed=0):
    return np.random.default_rng(seed)


def assert_disjoint(parts):
    joined = np.concatenate(parts)
    assert len(np.unique(joined)) == len(joined)
    for part in parts:
        assert part.dtype == np.int64
        assert all(a < b for a, b in pairwise(part))
    return joined


def test_dirichlet_gives_the_published_example():
    parts = split.dirichlet([0] * 6 + [1] * 6, 3, alpha=2.0, min_images=1, rng=np.random.RandomState(0))
    assert [part.tolist() for part in parts] == [[2, 8], [4, 5, 6, 10], [0, 1, 3, 7, 9, 11]]


def test_dirichlet_draws_again_until_everyone_has_enough():
    labels = np.repeat(np.arange(3), 40)
    first = split.dirichlet(labels, 4, alpha=0.5, min_images=0, rng=rng(3))
    assert min(len(part) for part in first) < 20
    assert min(len(part) for part in split.dirichlet(labels, 4, alpha=0.5, min_images=20, rng=rng(3))) >= 20


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    clients=st.integers(1, 6),
    alpha=st.floats(0.05, 100),
    seed=st.integers(0, 99),
)
def test_dirichlet_gives_every_row_to_exactly_one_client(labels, clients, alpha, seed):
    parts = split.dirichlet(labels, clients, alpha, 0, rng(seed))
    assert len(parts) == clients
    assert sorted(assert_disjoint(parts)) == list(range(len(labels)))


def test_a_large_alpha_spreads_every_class_nearly_evenly():
    labels = np.repeat(np.arange(5), 4000)
    for part in split.dirichlet(labels, 4, alpha=1e6, min_images=1, rng=rng()):
        assert np.bincount(labels[part]) == pytest.approx(1000, rel=0.12)


def test_a_small_alpha_gives_a_class_to_few_clients():
    labels = np.repeat(np.arange(5), 400)
    parts = split.dirichlet(labels, 10, alpha=0.05, min_images=0, rng=rng())
    largest = np.max([np.bincount(labels[part], minlength=5) for part in parts], axis=0)
    assert (largest > 150).all()  # an even share is 40


def test_dirichlet_that_cannot_be_says_so_at_once():
    with pytest.raises(
        ValueError, match=r"10 images over 3 clients with at least 4 each is impossible: use fewer clients"
    ):
        split.dirichlet([0] * 10, 3, alpha=2.0, min_images=4, rng=rng())


def test_dirichlet_that_is_not_found_names_alpha_and_the_remedy():
    with pytest.raises(
        ValueError, match=r"at least 20 each was not found in 1000 draws with alpha = 0\.01: use a larger"
    ):
        split.dirichlet([0] * 60, 3, alpha=0.01, min_images=20, rng=rng())


@given(count=st.integers(1, 200), clients=st.integers(1, 20), seed=st.integers(0, 99))
def test_iid_parts_cover_all_rows_and_are_equally_large(count, clients, seed):
    if count < clients:
        with pytest.raises(
            ValueError, match=f"{clients} clients need at least {clients} images, but there are {count}"
        ):
            split.iid(count, clients, rng(seed))
        return
    parts = split.iid(count, clients, rng(seed))
    assert sorted(assert_disjoint(parts)) == list(range(count))
    assert np.ptp([len(part) for part in parts]) <= 1


def test_iid_is_a_permutation_cut_into_parts():
    cut = np.array_split(np.random.default_rng(7).permutation(23), 4)
    assert [part.tolist() for part in split.iid(23, 4, rng(7))] == [sorted(part.tolist()) for part in cut]


@pytest.mark.parametrize(
    "values", [["b", "a", "b", "c"], np.array(["b", "a", "b", "c"]), np.array(["b", "a", "b", "c"], dtype=object)]
)
def test_a_column_makes_one_client_per_value_in_sorted_order(values):
    parts = split.by_column(values)
    assert list(parts) == ["a", "b", "c"]
    assert [rows.tolist() for rows in parts.values()] == [[1], [0, 2], [3]]
    assert_disjoint(list(parts.values()))


def test_a_column_of_numbers_is_sorted_as_numbers():
    assert list(split.by_column(np.array([10, 9, 10]))) == ["9", "10"]


def test_a_column_of_one_value_is_no_split():
    with pytest.raises(ValueError, match=r"at least two different values, but has only 'x': name another column"):
        split.by_column(["x", "x"])
    with pytest.raises(ValueError, match=r"at least two different values, but has no rows"):
        split.by_column([])


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_a_column_with_gaps_says_where(gap):
    with pytest.raises(
        ValueError, match=r"no value in 2 of 4 rows, first in row 1: fill them in or leave those rows out"
    ):
        split.by_column(["x", gap, "y", gap])


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), over=st.integers(0, 9), seed=st.integers(0, 99))
def test_sizes_are_kept_and_no_row_is_used_twice(sizes, over, seed):
    parts = split.by_sizes(sum(sizes) + over, sizes, rng(seed))
    assert [len(part) for part in parts] == sizes
    assert assert_disjoint(parts).max() < sum(sizes) + over


def test_sizes_beyond_the_images_are_refused():
    with pytest.raises(ValueError, match=r"sizes add up to 12, but there are 10 images: make them smaller"):
        split.by_sizes(10, [5, 7], rng())


def test_the_same_seed_gives_the_same_split():
    labels = np.arange(100) % 3
    for again in (lambda r: split.iid(100, 5, r), lambda r: split.dirichlet(labels, 5, 1.0, 2, r)):
        assert all(np.array_equal(a, b) for a, b in zip(again(rng(1)), again(rng(1)), strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(again(rng(1)), again(rng(2)), strict=True))
