"""What holds for every rule of aggregation, whatever the states."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Outcome, Params, Server, Update, Verdict
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.clip import CenteredClipping, NormClipping
from fedpca.parts.server.contribution import ByContribution
from fedpca.parts.server.distance import by_distance
from fedpca.parts.server.krum import NearestNeighbours
from fedpca.parts.server.robust import GeometricMedian, PerCoordinate, Trimmed, coordinate_median
from fedpca.parts.server.weigh import by_size
from fedpca.parts.sides import MixRules

VECTORS = ("weights", "buffers", "counters")
RULES = {
    "mean": WeightedMean(by_size, smoothing=1.0),
    "median": coordinate_median,
    "geometric median": GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06),
    "by distance": by_distance,
    "by contribution": ByContribution(mode="times", average_rounds=True),
    "by contribution + geometric median": MixRules(
        ("a", ByContribution(mode="times", average_rounds=True)),
        ("b", GeometricMedian(steps=4, min_distance=1e-05, tolerance=1e-06)),
        share=0.5,
    ),
    "trimmed mean": PerCoordinate(Trimmed(0.2)),
    "krum": NearestNeighbours(-1, 0.2, keep=1),  # by all distances: the nearest alone is as near to the other one
    "multi-krum": NearestNeighbours(None, 0.2, keep=None),
    "norm clipping": NormClipping(WeightedMean(by_size, smoothing=1.0), None),
    "centered clipping": CenteredClipping(None, 3, history=True),
    "mean + median": MixRules(("a", WeightedMean(by_size, smoothing=1.0)), ("b", coordinate_median), share=0.5),
}
SHIFTING = ["mean", "median", "geometric median", "by distance", "mean + median", "trimmed mean"]
SIZES = st.lists(st.integers(1, 60), min_size=3, max_size=7)


def random_states(seed: int, count: int, dtype: torch.dtype = torch.float32) -> list[Params]:
    rng = torch.Generator().manual_seed(seed)
    draws = [(torch.randn(6, generator=rng), torch.rand(3, generator=rng)) for _ in range(count)]
    return [Params(w.to(dtype), b.to(dtype), torch.tensor([7 * i])) for i, (w, b) in enumerate(draws)]


def aggregated(rule: str, states: list[Params], sizes: list[int], order=None) -> Outcome:
    """The outcome; the first client is judged mislabeled. Updates arrive in this order, the names stay."""
    start = replace(states[0], weights=0 * states[0].weights, buffers=0 * states[0].buffers, lengths=(4, 2, 3))
    fold = RULES[rule](Server(start, diagnosis={"0": Verdict("mislabeled")}))
    for i in order or range(len(states)):
        fold.add(str(i), Update(states[i], sizes[i]))
    return fold.finish()


@pytest.mark.parametrize("rule", RULES)
@given(seed=st.integers(0, 10**6), sizes=SIZES, data=st.data())
def test_the_order_of_clients_does_not_matter_and_weights_are_shares(rule: str, seed: int, sizes, data):
    states = random_states(seed, len(sizes))
    order = data.draw(st.permutations(range(len(sizes))))
    one, two = aggregated(rule, states, sizes), aggregated(rule, states, sizes, order)
    torch.testing.assert_close(two.params.weights, one.params.weights, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(two.params.buffers, one.params.buffers, atol=1e-5, rtol=1e-5)
    assert one.params.buffers.min() >= 0, "variances"
    if one.weights is not None:
        assert two.weights == pytest.approx(one.weights, abs=1e-7)
        assert sum(one.weights.values()) == pytest.approx(1, abs=1e-12)
        assert min(one.weights.values()) >= 0
        assert set(one.weights) == {str(i) for i in range(len(sizes))}


@pytest.mark.parametrize("rule", SHIFTING)
@given(seed=st.integers(0, 10**6), sizes=SIZES, by=st.floats(-5, 5))
def test_a_shift_of_all_shifts_the_result(rule: str, seed: int, sizes: list[int], by: float):
    states = random_states(seed, len(sizes))
    moved = [replace(own, weights=own.weights + by, buffers=own.buffers + by) for own in states]
    before, after = (aggregated(rule, some, sizes).params for some in (states, moved))
    torch.testing.assert_close(after.weights, before.weights + by, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(after.buffers, before.buffers + by, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rule", RULES)
@given(seed=st.integers(0, 10**6), sizes=SIZES)
def test_identical_clients_give_back_their_state(rule: str, seed: int, sizes: list[int]):
    (own,) = random_states(seed, 1)
    result = aggregated(rule, [own] * len(sizes), sizes).params
    for vector in VECTORS:
        assert torch.equal(getattr(result, vector), getattr(own, vector)), vector


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types_and_shapes_are_kept_and_inputs_are_not_changed(rule: str, dtype: torch.dtype):
    states, copies = random_states(1, 5, dtype), random_states(1, 5, dtype)
    result = aggregated(rule, states, [1, 2, 3, 4, 5]).params
    for vector in VECTORS:
        assert getattr(result, vector).dtype == getattr(states[0], vector).dtype, vector
        assert getattr(result, vector).shape == getattr(states[0], vector).shape, vector
        for own, copy in zip(states, copies, strict=True):
            assert torch.equal(getattr(own, vector), getattr(copy, vector)), vector


@given(st.integers(0, 10**6), st.integers(3, 9), st.data())
def test_less_than_half_cannot_move_the_median_out_of_the_others_range(seed: int, count: int, data):
    states = random_states(seed, count)
    spoiled = data.draw(st.sets(st.integers(0, count - 1), max_size=(count - 1) // 2))
    wild = data.draw(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=6, max_size=6))
    honest = torch.stack([own.weights for i, own in enumerate(states) if i not in spoiled])
    states = [replace(own, weights=torch.tensor(wild)) if i in spoiled else own for i, own in enumerate(states)]
    result = aggregated("median", states, [1] * count).params.weights
    assert ((result >= honest.amin(dim=0)) & (result <= honest.amax(dim=0))).all()
