"""FedNoRo's detection and weights by distance: the specification's numbers, and what must hold for any."""

from dataclasses import replace
from math import exp, hypot, nan

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedpca.core import Order, Outcome, Params, Server, Site, Update, Verdict, When
from fedpca.models.build import build
from fedpca.parts.client.distance import class_losses
from fedpca.parts.server import distance, robust
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.distance import HighClassLosses, by_distance, distance_weights, loss_table, upper_rows
from fedpca.parts.server.weigh import by_size

NOW = When(11, 100)
TOY = [(0.2, 0.4), (0.3, 0.4), (0.25, 0.45), (0.22, 0.38), (1, 2), (0.9, 1.6)]


def told(rows) -> dict[str, dict[str, list[float]]]:
    """Reports of these class losses; nan is a class of which the client has nothing, sent as 0."""
    return {
        str(i): {
            "class_loss": [0.0 if value != value else float(value) for value in row],  # noqa: PLR0124 (nan)
            "class_count": [0.0 if value != value else 5.0 for value in row],  # noqa: PLR0124 (nan)
        }
        for i, row in enumerate(rows)
    }


def state(weights, buffers=(), counter: int = 0, lengths=()) -> Params:
    floats = (torch.as_tensor(values, dtype=torch.float32).reshape(-1) for values in (weights, buffers))
    return Params(*floats, torch.tensor([counter]), lengths=lengths)


def aggregated(states: list[Params], mislabeled=(), sizes=None, lengths=None) -> Outcome:
    """The outcome when these clients are judged mislabeled; each vector is one tensor unless told otherwise."""
    first = states[0]
    lengths = (len(first.weights), len(first.buffers)) if lengths is None else lengths
    start = replace(first, weights=0 * first.weights, buffers=0 * first.buffers, lengths=lengths)
    groups = {str(i): Verdict("mislabeled" if i in mislabeled else "common") for i in range(len(states))}
    fold = by_distance(Server(start, diagnosis=groups))
    for i, own in enumerate(states):
        fold.add(str(i), Update(own, sizes[i] if sizes else 1))
    return fold.finish()


def weights(*args, **options) -> list[float]:
    return list(aggregated(*args, **options).weights.values())


def test_the_specifications_table():
    table = loss_table(told([(0.2, 0.4), (0.3, nan), (1, 2), (0.9, 1.6)]))
    np.testing.assert_allclose(table, [(0, 0), (0.125, 0), (1, 1), (0.875, 0.75)], atol=1e-12)


def test_a_class_that_nobody_has_or_all_do_alike_tells_nothing():
    table = loss_table(told([(0.2, nan, 1), (0.3, nan, 1)]))
    np.testing.assert_allclose(table, [(0, 0, 0), (1, 0, 0)], atol=1e-12)


def test_the_specifications_detection():
    after = HighClassLosses(fits=9)({}, told(TOY), NOW)
    assert {client for client, verdict in after.items() if verdict.group == "mislabeled"} == {"4", "5"}
    assert {after[client].group for client in "0123"} == {"common"}
    table = loss_table(told(TOY))
    assert all(upper_rows(table, fits) == [False] * 4 + [True] * 2 for fits in (1, 3, 9)), "9 votes of 9"


@given(st.permutations(range(6)))
def test_detection_does_not_depend_on_the_order(order: list[int]):
    assert upper_rows(loss_table(told([TOY[i] for i in order])), 9) == [i >= 4 for i in order]


def test_alike_clients_are_all_common():
    after = HighClassLosses(fits=9)({}, told([(0.5, 0.7)] * 4), NOW)
    assert {verdict.group for verdict in after.values()} == {"common"}


def test_reports_of_another_kind_leave_the_opinions():
    before = HighClassLosses(fits=9)({}, told(TOY), NOW)
    after = HighClassLosses(fits=9)(before, {"0": {"loss": 9.0}}, NOW)
    assert [after[c].group for c in after] == [before[c].group for c in before]


def test_a_client_reports_mean_loss_and_number_per_class():
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (300, 1, 8, 8), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 3, (300,), generator=rng)  # nothing of class 3
    site = Site(build("mlp", (1, 8, 8), 4, seed=1), x, y, {}, Order(11, 100, Verdict()), rng)
    with torch.no_grad():
        report = class_losses(site)
        logits = site.net(x)
    assert report["class_count"] == [*(float((y == c).sum()) for c in range(3)), 0.0]
    means = [cross_entropy(logits[y == c], y[y == c]).item() for c in range(3)]
    assert report["class_loss"] == pytest.approx([*means, 0.0], rel=1e-5)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1, 1, 1, 1], [0.336201, 0.336201, 0.123681, 0.203916]),
        ([1, 1, 2, 2], [0.253240, 0.253240, 0.186324, 0.307196]),
    ],
)
def test_the_specifications_weights(sizes: list[int], expected: list[float]):
    """Two clean clients at 0 and 10, two noisy ones 2 from the first and 1 from the second."""
    given = distance_weights(dict(zip("abcd", sizes, strict=True)), {"c": 2.0, "d": 1.0})
    assert list(given.values()) == pytest.approx(expected, abs=1e-6)
    states = [state([0.0]), state([10.0]), state([-2.0]), state([11.0])]
    outcome = aggregated(states, mislabeled={2, 3}, sizes=sizes)
    assert list(outcome.weights.values()) == pytest.approx(expected, abs=1e-6)
    mean = sum(w * s.weights.item() for w, s in zip(expected, states, strict=True))
    assert outcome.params.weights.item() == pytest.approx(mean, abs=1e-4)


def test_the_distance_is_the_sum_of_each_tensors_and_not_that_of_the_whole():
    """Noisy 2 is nearer to the clean one by the norm of all entries, noisy 1 by the sum over the two tensors."""
    clean, one, two = state([0.0, 0, 0, 0]), state([5.0, 0, 0, 0]), state([3.0, 0, 0, 3])
    by_tensor = weights([clean, one, two], mislabeled={1, 2}, lengths=(2, 2, 0))
    near, far = 5, 3 + 3
    counts = [1, exp(-near / far), exp(-1)]
    assert by_tensor == pytest.approx([count / sum(counts) for count in counts])
    as_one = weights([clean, one, two], mislabeled={1, 2}, lengths=(4, 0))
    counts = [1, exp(-1), exp(-hypot(3, 3) / 5)]
    assert as_one == pytest.approx([count / sum(counts) for count in counts])


def test_buffers_count_as_tensors_of_their_own_and_counters_do_not_count():
    clean, one = state([0.0, 0], [0, 0, 0], counter=0), state([3.0, 4], [1, 2, 2], counter=10**6)
    two = state([8.0, 0], [0, 0, 0], counter=0)
    given = weights([clean, one, two], mislabeled={1, 2}, lengths=(2, 3))
    assert given[1] == pytest.approx(given[2]), "5 + 3 is as far as 8"
    apart = weights([clean, one, two], mislabeled={1, 2}, lengths=(1, 1, 1, 2))
    counts = [1, exp(-1), exp(-8 / (3 + 4 + 1 + hypot(2, 2)))]
    assert apart == pytest.approx([count / sum(counts) for count in counts])


def by_the_formula(states, mislabeled, sizes, cuts) -> list[float]:
    """Section 4.4 of the specification, word for word."""

    def tensors(own: Params):
        return torch.split(torch.cat([own.weights, own.buffers]).double(), cuts)

    def dist(one: Params, two: Params) -> float:
        return sum((a - b).norm().item() for a, b in zip(tensors(one), tensors(two), strict=True))

    clean = [i for i in range(len(states)) if i not in mislabeled]
    far = [min(dist(own, states[j]) for j in clean) if i in mislabeled else 0.0 for i, own in enumerate(states)]
    top = max(far) or 1
    counts = [size * exp(-d / top) for size, d in zip(sizes, far, strict=True)]
    return [count / sum(counts) for count in counts]


def random_states(seed: int, count: int) -> list[Params]:
    rng = torch.Generator().manual_seed(seed)
    return [state(torch.randn(7, generator=rng), torch.rand(5, generator=rng), counter=i) for i in range(count)]


@given(st.integers(0, 10**6), st.integers(2, 6), st.data())
def test_weights_are_the_formulas_and_a_shift_shifts(seed: int, count: int, data):
    states = random_states(seed, count)
    noisy = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    sizes = data.draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))
    outcome = aggregated(states, noisy, sizes, lengths=(3, 4, 2, 3))
    assert list(outcome.weights.values()) == pytest.approx(by_the_formula(states, noisy, sizes, [3, 4, 2, 3]))
    moved = [replace(own, weights=own.weights + 3, buffers=own.buffers + 3) for own in states]
    shifted = aggregated(moved, noisy, sizes, lengths=(3, 4, 2, 3)).params
    torch.testing.assert_close(shifted.weights, outcome.params.weights + 3, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shifted.buffers, outcome.params.buffers + 3, atol=1e-5, rtol=1e-5)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_without_noisy_clients_it_is_the_mean_by_size(seed: int, sizes: list[int]):
    states = random_states(seed, len(sizes))
    outcome = aggregated(states, (), sizes)
    fold = WeightedMean(by_size, smoothing=1.0)(Server(states[0]))
    for i, own in enumerate(states):
        fold.add(str(i), Update(own, sizes[i]))
    plain = fold.finish()
    assert outcome.weights == pytest.approx(plain.weights, abs=1e-15)
    torch.testing.assert_close(outcome.params.weights, plain.params.weights)
    torch.testing.assert_close(outcome.params.buffers, plain.params.buffers)
    assert torch.equal(outcome.params.counters, plain.params.counters)


def test_without_clean_clients_too():
    assert weights(random_states(0, 3), {0, 1, 2}, sizes=[1, 2, 5]) == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_noisy_clients_keep_between_a_third_and_all_of_their_weight():
    states = [state([0.0]), state([0.0]), state([1.0]), state([100.0])]
    _, twin, near, far = (w / weights(states, {1, 2, 3})[0] for w in weights(states, {1, 2, 3}))
    assert twin == pytest.approx(1)
    assert 1 / np.e < near < 1
    assert far == pytest.approx(1 / np.e)


def test_noisy_twins_of_clean_clients_have_full_weight():
    assert weights([state([1.0, 2])] * 4, {2, 3}) == pytest.approx([0.25] * 4)


def test_the_nearest_is_sought_among_the_clean_alone():
    """A noisy client beside another noisy one is no nearer to the clean."""
    alone = distance_weights({"a": 1, "b": 1, "c": 1}, {"b": 9.0, "c": 10.0})
    assert weights([state([0.0]), state([9.0]), state([10.0])], {1, 2}) == pytest.approx(list(alone.values()))


def test_who_did_not_train_has_no_say():
    states = [state([0.0]), state([4.0])]
    fold = by_distance(Server(replace(states[0], lengths=(1,)), diagnosis={"b": Verdict("mislabeled")}))
    fold.add("a", Update(None, 0))
    fold.add("b", Update(states[1], 3))
    outcome = fold.finish()
    assert outcome.weights.get("a", 0.0) == 0
    assert outcome.weights["b"] == 1
    assert outcome.params.weights.item() == 4


def test_nobody_keeps_the_model():
    start = state([7.0], lengths=(1, 0))
    assert by_distance(Server(start)).finish().params is start


def test_blocks_do_not_change_the_result(monkeypatch):
    states = random_states(3, 6)
    whole = aggregated(states, {1, 4}, lengths=(3, 4, 2, 3))
    monkeypatch.setattr(robust, "BLOCK", 2)
    monkeypatch.setattr(distance, "BLOCK", 2)
    blocked = aggregated(states, {1, 4}, lengths=(3, 4, 2, 3))
    assert blocked.weights == pytest.approx(whole.weights, abs=1e-12)
    torch.testing.assert_close(blocked.params.weights, whole.params.weights)


def test_a_start_that_does_not_know_its_tensors_is_refused():
    with pytest.raises(ValueError, match=r"lengths sum to 0, but the state has 12 entries.*params_of"):
        aggregated(random_states(0, 3), {1}, lengths=())
