"""Krum and Multi-Krum: the specification's numbers, and what must hold for any."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Outcome, Params, Server, Update
from fedpca.errors import UserError
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.krum import NearestNeighbours, neighbour_scores, ranked
from fedpca.parts.server.weigh import by_size

SIX = [(0.0, 0), (1, 0), (0, 1), (1.5, 1.5), (5, 5), (5, 5.1)]


def scores(points, malicious: int) -> list[float]:
    rows = torch.tensor(points, dtype=torch.float64)
    return neighbour_scores(rows @ rows.T, malicious).tolist()


def outcome(rule, points, sizes=None, start=(0.0, 0.0)) -> Outcome:
    fold = rule(Server(Params(torch.tensor(start), torch.zeros(1), torch.zeros(1, dtype=torch.int64))))
    for i, point in enumerate(points):
        state = Params(torch.tensor(point, dtype=torch.float32), torch.tensor([float(i)]), torch.tensor([i]))
        fold.add(str(i), Update(state, sizes[i] if sizes else 1))
    return fold.finish()


def test_the_specifications_scores():
    assert scores(SIX, 1) == pytest.approx([6.5, 5.5, 5.5, 9.5, 65.51, 67.03])
    assert scores(SIX, 2) == pytest.approx([2, 3, 3, 5, 24.51, 25.22])
    assert ranked(neighbour_scores(torch.eye(3, dtype=torch.float64), 0)) == [0, 1, 2], "of equal ones the first"


def test_the_specifications_choices():
    one, two = (outcome(NearestNeighbours(f, 0.2, keep=1), SIX) for f in (1, 2))
    assert one.params.weights.tolist() == [1, 0]
    assert (one.params.buffers.item(), one.params.counters.item()) == (1, 1), "the whole state"
    assert two.params.weights.tolist() == [0, 0]
    three = outcome(NearestNeighbours(1, 0.2, keep=3), SIX)
    assert three.params.weights.tolist() == pytest.approx([1 / 3, 1 / 3])
    assert [client for client, weight in three.weights.items() if weight] == ["0", "1", "2"]


def test_a_fifth_of_the_clients_unless_f_is_given():
    assert [NearestNeighbours(None, 0.2, None).malicious_of(count) for count in (3, 5, 9, 20)] == [0, 1, 1, 4]
    assert sum(weight > 0 for weight in outcome(NearestNeighbours(None, 0.2, None), SIX).weights.values()) == 5


def test_all_kept_is_the_mean_by_size():
    sizes = [1, 2, 3, 4, 5, 6]
    kept, mean = (
        outcome(rule, SIX, sizes) for rule in (NearestNeighbours(1, 0.2, keep=6), WeightedMean(by_size, smoothing=1.0))
    )
    torch.testing.assert_close(kept.params.weights, mean.params.weights)
    assert kept.weights == pytest.approx(mean.weights)


def test_without_a_bound_it_is_the_medoid_of_squared_distances():
    """f = -1: all others count."""
    rows = torch.tensor(SIX, dtype=torch.float64)
    assert scores(SIX, -1) == pytest.approx(torch.cdist(rows, rows).square().sum(dim=1).tolist())


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(0, 3))
def test_krum_picks_one_of_the_updates_wherever_they_are(seed: int, count: int, malicious: int):
    rng = torch.Generator().manual_seed(seed)
    points = (torch.randn(count, 2, generator=rng) * 8).round() / 8  # so that a shift is exact
    rule = NearestNeighbours(malicious, 0.2, keep=1)
    picked, moved = outcome(rule, points.tolist()), outcome(rule, (points + 4).tolist(), start=(4.0, 4.0))
    assert picked.params.weights.tolist() in points.tolist()
    assert sorted(picked.weights.values()) == [0] * (count - 1) + [1]
    assert torch.equal(moved.params.weights, picked.params.weights + 4)


def test_near_equal_models_keep_their_digits():
    """Squared lengths of the models themselves would lose them: distances are of steps, in double precision."""
    points = [(1000 + x, 0.0) for x in (0.0, 1e-3, 2e-3, 9e-3, 1.2e-2)]
    assert outcome(NearestNeighbours(1, 0.2, keep=1), points, start=(1000.0, 0.0)).weights["1"] == 1


def test_too_many_malicious_are_refused_beforehand():
    for name in ("krum", "multi-krum"):
        with pytest.raises(UserError, match=rf"{name}: .*malicious = 4 needs 2 x 4 \+ 3 clients in a round, and there "
                           r"are 10: set it to 3 or less"):  # fmt: skip
            compose(name, Plan(rounds=3, clients=20, participation=0.5), {name: {"malicious": 4}})
        compose(name, Plan(rounds=3, clients=11), {name: {"malicious": 4}})
