"""Norm clipping and centered clipping: the specification's numbers, and what must hold for any."""

from math import inf

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Outcome, Params, Server, Update
from fedpca.methods.bounded import bounded
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.clip import CENTER, CenteredClipping, NormClipping, clipped_center
from fedpca.parts.server.weigh import by_size
from fedpca.settings.experiment import AggregationSettings

MEAN = WeightedMean(by_size, smoothing=1.0)
THREE = [(1.0, 0), (0, 1), (10, 10)]


def outcome(rule, points, sizes=None, start=(0.0, 0.0), memory=None) -> Outcome:
    begin = torch.tensor(start, dtype=torch.float64)
    fold = rule(Server(Params(begin, torch.zeros(1), torch.zeros(1, dtype=torch.int64)), memory=memory or {}))
    for i, point in enumerate(points):
        state = Params(torch.tensor(point, dtype=torch.float64), torch.tensor([float(i)]), torch.tensor([i]))
        fold.add(str(i), Update(state, sizes[i] if sizes else 1))
    return fold.finish()


def weights(*given, **named) -> list[float]:
    return outcome(*given, **named).params.weights.tolist()


# Norm clipping


def test_the_specifications_clipped_update():
    assert weights(NormClipping(MEAN, 2.0), [(4.0, 5.0)], start=(1.0, 1.0)) == pytest.approx([2.2, 2.6])


@pytest.mark.parametrize(("radius", "expected"), [(2.0, (0, 1.05)), (None, (-0.15, 0.85)), (1.0, (-0.15, 0.85))])
def test_the_specifications_clipped_means(radius: float | None, expected):
    """Without a radius it is the median length, which is 1 here."""
    points, sizes = [(3.0, 4), (0, 1), (-0.6, 0.8)], [1, 1, 2]
    found = outcome(NormClipping(MEAN, radius), points, sizes)
    assert found.params.weights.tolist() == pytest.approx(expected)
    assert found.params.buffers.item() == pytest.approx(1.25), "buffers are averaged as they are"
    assert found.weights == pytest.approx({"0": 0.25, "1": 0.25, "2": 0.5})


@given(st.integers(0, 10**6), st.floats(0, 5), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_no_step_is_longer_than_the_radius_and_none_is_shorter_without_one(seed: int, radius: float, sizes: list[int]):
    points = (3 * torch.randn(len(sizes), 2, generator=torch.Generator().manual_seed(seed))).tolist()
    assert torch.tensor(weights(NormClipping(MEAN, radius), points, sizes)).norm() <= radius * (1 + 1e-6)
    assert weights(NormClipping(MEAN, inf), points, sizes) == weights(MEAN, points, sizes)


def test_bounds_of_weights_are_inside_the_clipping_and_those_of_updates_outside():
    """Else a capped weight would bring the long update back."""
    method = compose("norm-clipping", Plan(rounds=3), {"norm-clipping": {"radius": 1.0}})
    rule = bounded(method, AggregationSettings(max_weight=1.5, clip=9.0)).recipe(1).aggregate
    capped = outcome(rule, [(0.0, 8.0), (0, 1), (0, 1)], sizes=[8, 1, 1])
    assert capped.weights == pytest.approx({"0": 0.5, "1": 0.25, "2": 0.25})
    assert capped.params.weights.tolist() == pytest.approx([0, 1])


# Centered clipping


def test_the_specifications_centers():
    for steps, v in ((1, 0.569036), (2, 0.758714), (3, 0.821940)):
        assert weights(CenteredClipping(1.0, steps, history=False), THREE) == pytest.approx([v, v], abs=1e-6)
    history = CenteredClipping(1.0, 1, history=True)
    after = outcome(history, THREE, memory={CENTER: torch.tensor([0.5, 0.5], dtype=torch.float64)})
    assert after.params.weights.tolist() == pytest.approx([0.735702, 0.735702], abs=1e-6)
    assert after.memory[CENTER].tolist() == after.params.weights.tolist()


def test_the_specifications_shares():
    rows = torch.tensor([*THREE, (0.0, 0.0)], dtype=torch.float64)
    shares = clipped_center(rows @ rows.T, 1.0, 3)
    assert shares[:-1].tolist() == pytest.approx([0.467581, 0.467581, 0.035436], abs=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 3), st.integers(1, 4))
def test_the_center_moves_by_at_most_the_radius_a_step_and_by_nothing_at_zero(seed, count, radius, steps):
    points = (3 * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))).tolist()
    moved = torch.tensor(weights(CenteredClipping(radius, steps, history=False), points))
    assert moved.norm() <= steps * radius * (1 + 1e-6) + 1e-9
    unbounded = weights(CenteredClipping(1e9, steps, history=False), points, sizes=list(range(1, count + 1)))
    assert unbounded == pytest.approx(torch.tensor(points, dtype=torch.float64).mean(dim=0).tolist()), "sizes ignored"


def test_without_a_radius_it_is_the_lower_median_length():
    far = [*THREE, (0, 20.0)]
    assert weights(CenteredClipping(None, 2, history=False), far) == weights(CenteredClipping(1.0, 2, False), far)


def test_nothing_is_kept_without_history_and_nothing_is_lost_where_nobody_trained():
    assert outcome(CenteredClipping(1.0, 1, history=False), THREE).memory == {}
    kept = {CENTER: torch.ones(2)}
    fold = CenteredClipping(1.0, 1, history=True)(
        Server(Params(torch.zeros(2), torch.zeros(0), torch.zeros(0)), memory=kept)
    )
    fold.add("a", Update(None, 0))
    done = fold.finish()
    assert done.params.weights.tolist() == [0, 0]
    assert done.memory == kept
