"""Median and geometric median: the specification's numbers, and what must hold for any."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Outcome, Params, Server, Update
from fedpca.parts.server import robust
from fedpca.parts.server.robust import (
    GeometricMedian,
    PerCoordinate,
    Trimmed,
    coordinate_median,
    geometric_weights,
    middle,
    share_of,
)

DIAMOND = [(0.0, 0), (4, 0), (5, 3), (1, 2)]


def aggregated(rule, points, sizes=None, counters=None) -> Params:
    start = Params(torch.zeros(len(points[0])), torch.zeros(1), torch.zeros(1, dtype=torch.int64))
    fold = rule(Server(start))
    for i, point in enumerate(points):
        counter = torch.tensor([counters[i] if counters else 0])
        state = Params(torch.tensor(point, dtype=torch.float32), torch.tensor([float(i)]), counter)
        fold.add(str(i), Update(state, sizes[i] if sizes else 1))
    outcome = fold.finish()
    assert outcome.weights is None
    return outcome.params


def median(points, **options) -> list[float]:
    return aggregated(coordinate_median, points, **options).weights.tolist()


def geometric(points, steps=4, sizes=None) -> list[float]:
    gram = torch.tensor(points, dtype=torch.float64)
    weights = torch.tensor(sizes or [1.0] * len(points)).double()
    betas = geometric_weights(gram @ gram.T, weights, GeometricMedian(steps, tolerance=0.0, min_distance=1e-05))
    return (betas @ gram).tolist()


def test_the_specifications_median():
    assert median([(1.0, 10), (2, 20), (3, -5), (100, 7)]) == [2.5, 8.5]
    assert median([(1.0,), (9,), (5,)]) == [5.0]


def test_counters_take_the_lower_median_and_buffers_follow():
    result = aggregated(coordinate_median, [(0.0,)] * 4, counters=[1, 7, 3, 9])
    assert result.counters.tolist() == [3]
    assert result.buffers.tolist() == [1.5]


def test_the_specifications_geometric_medians():
    expected = [(2.5, 1.25), (2.387730, 1.212806), (2.312162, 1.215039), (2.258124, 1.224430), (2.218561, 1.233427)]
    for steps, point in enumerate(expected):
        assert geometric(DIAMOND, steps) == pytest.approx(point, abs=1e-6)
    assert geometric(DIAMOND, 2000) == pytest.approx((40 / 19, 24 / 19), abs=1e-6)
    assert geometric(DIAMOND, 1, [1, 2, 3, 4]) == pytest.approx((2.496031, 1.710591), abs=1e-6)
    assert geometric(DIAMOND, 4, [1, 2, 3, 4]) == pytest.approx((2.117298, 1.750656), abs=1e-6)
    line = [(0.0,), (1,), (10,)]
    assert geometric(line, 1) == pytest.approx([2.425390], abs=1e-6)
    assert geometric(line, 4) == pytest.approx([1.030665], abs=1e-6)
    assert geometric(line, 500, [1, 1, 3]) == pytest.approx([10], abs=1e-3)
    square = [(0.0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.5), (1e6, 1e6), (1e6, -1e6)]
    assert geometric(square, 3000) == pytest.approx((0.642203, 0.5), abs=1e-4)


def test_through_the_fold_as_by_hand():
    assert aggregated(
        GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06), DIAMOND
    ).weights.tolist() == pytest.approx([2.218561, 1.233427], abs=1e-5)
    betas = [0.211380, 0.255018, 0.166222, 0.367381]
    assert aggregated(
        GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06), DIAMOND
    ).buffers.item() == pytest.approx(sum(i * b for i, b in enumerate(betas)), abs=1e-5)
    sized = aggregated(
        GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06), DIAMOND, sizes=[1, 2, 3, 4]
    ).weights.tolist()
    assert sized == pytest.approx([2.117298, 1.750656], abs=1e-5)


TRIMMING = [(1.0, 10), (2, 0), (3, 1), (4, 2), (100, -50)]


@pytest.mark.parametrize(("share", "expected"), [(0.0, (22, -7.4)), (0.2, (3, 1)), (0.39, (3, 1)), (0.4, (3, 1))])
def test_the_specifications_trimmed_means(share: float, expected):
    assert aggregated(PerCoordinate(Trimmed(share)), TRIMMING).weights.tolist() == pytest.approx(expected)
    other = [(1.0, 10), (2, 0), (3, 1), (4, 50), (100, 2)]
    assert aggregated(PerCoordinate(Trimmed(0.2)), other).weights.tolist() == pytest.approx((3, 13 / 3))


def test_a_trimmed_mean_of_counters_is_their_lower_median_and_buffers_follow():
    result = aggregated(PerCoordinate(Trimmed(0.25)), [(0.0,)] * 4, counters=[1, 7, 3, 9])
    assert (result.counters.tolist(), result.buffers.tolist()) == ([3], [1.5])


@given(st.integers(0, 10**6), st.integers(1, 9), st.floats(0, 0.499), st.data())
def test_trimmed_values_do_not_count_however_large(seed: int, count: int, share: float, data):
    """Not by a rounding error either; half of what is left out may be anything."""
    rows = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    cut = share_of(count, share)
    spoiled = data.draw(st.sets(st.integers(0, count - 1), max_size=cut))
    honest = rows[[i for i in range(count) if i not in spoiled]]
    rows[list(spoiled)] = data.draw(st.sampled_from([-1e18, 1e18, 0.0]))
    result = Trimmed(share)(rows)
    assert ((result >= honest.amin(dim=0) - 1e-6) & (result <= honest.amax(dim=0) + 1e-6)).all()
    if cut == (count - 1) // 2:
        assert torch.allclose(result, middle(rows))
    if cut == 0:
        assert torch.allclose(result, rows.mean(dim=0), atol=1e-6)


def test_no_steps_are_the_mean():
    assert aggregated(
        GeometricMedian(steps=0, min_distance=1e-05, tolerance=1e-06), DIAMOND
    ).weights.tolist() == pytest.approx([2.5, 1.25])


def test_steps_never_raise_the_summed_distance():
    points = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    totals = [
        (points - torch.tensor(geometric(points.tolist(), steps))).norm(dim=1).sum().item() for steps in range(30)
    ]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(totals))


POINTS = st.lists(st.tuples(*[st.floats(-5, 5)] * 3), min_size=3, max_size=9)


@pytest.mark.parametrize("rule", [coordinate_median, GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06)])
@given(points=POINTS, seed=st.integers(0, 1000))
def test_order_does_not_matter_and_a_shift_shifts(rule, points, seed: int):
    before = aggregated(rule, points).weights
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).tolist()
    torch.testing.assert_close(aggregated(rule, [points[i] for i in order]).weights, before, atol=1e-4, rtol=1e-4)
    moved = aggregated(rule, [tuple(v + 3 for v in point) for point in points]).weights
    torch.testing.assert_close(moved, before + 3, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rule", [coordinate_median, GeometricMedian(steps=200, min_distance=1e-05, tolerance=1e-06)])
def test_a_minority_of_garbage_moves_it_little_and_a_majority_far(rule):
    good = [(0.1 * i, -0.1 * i) for i in range(5)]
    some = aggregated(rule, good + [(1e6, 1e6)] * 2).weights
    assert some.abs().max() < 2
    most = aggregated(rule, good + [(1e6, 1e6)] * 6).weights
    assert most.abs().max() > 1e5


@pytest.mark.parametrize("rule", [coordinate_median, GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06)])
def test_identical_clients_give_their_state(rule):
    assert aggregated(rule, [(1.5, -2.25)] * 4, counters=[6] * 4).weights.tolist() == [1.5, -2.25]
    assert aggregated(rule, [(1.5, -2.25)] * 4, counters=[6] * 4).counters.tolist() == [6]


@pytest.mark.parametrize("rule", [coordinate_median, GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06)])
def test_nobody_keeps_the_model(rule):
    start = Params(torch.ones(2), torch.ones(1), torch.ones(1, dtype=torch.int64))
    fold = rule(Server(start))
    fold.add("a", Update(None, 0))
    assert fold.finish() == Outcome(start)


@pytest.mark.parametrize("rule", [coordinate_median, GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06)])
def test_blocks_do_not_change_the_result(rule, monkeypatch):
    points = torch.randn(6, 50, generator=torch.Generator().manual_seed(1)).tolist()
    whole = aggregated(rule, points).weights
    monkeypatch.setattr(robust, "BLOCK", 7)
    torch.testing.assert_close(aggregated(rule, points).weights, whole, atol=1e-6, rtol=1e-6)
