import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpca.core import Params, Server, Update, Verdict
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.weigh import by_size


def state(*weights: float, buffers: tuple[float, ...] = (), counter: int = 0) -> Params:
    return Params(torch.tensor(weights).float(), torch.tensor(buffers).float(), torch.tensor([counter]))


def mean(start: Params, *updates: Update):
    fold = WeightedMean(by_size, smoothing=1.0)(Server(start))
    for number, update in enumerate(updates):
        fold.add(str(number), update)
    outcome = fold.finish()
    return outcome.params, outcome.weights


def test_the_specifications_example():
    updates = [
        Update(state(1, 2, counter=10), 1),
        Update(state(3, 4, counter=20), 1),
        Update(state(5, 9, counter=31), 2),
    ]
    result, shares = mean(state(0, 0), *updates)
    assert result.weights.tolist() == [3.5, 6.0]
    assert result.counters.tolist() == [23]
    assert shares == {"0": 0.25, "1": 0.25, "2": 0.5}


def test_buffers_are_averaged_like_weights():
    result, _ = mean(state(0, buffers=(9,)), Update(state(0, buffers=(1,)), 3), Update(state(0, buffers=(2,)), 1))
    assert result.buffers.tolist() == [1.25]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=7), st.integers(0, 10**6), st.integers(0, 2**31))
def test_identical_clients_give_back_their_state_bit_for_bit(sizes: list[int], counter: int, seed: int):
    same = Params(torch.randn(5, generator=torch.Generator().manual_seed(seed)), torch.rand(2), torch.tensor([counter]))
    result, shares = mean(state(0, 0, 0, 0, 0, buffers=(0, 0)), *(Update(same, size) for size in sizes))
    assert torch.equal(result.weights, same.weights)
    assert torch.equal(result.buffers, same.buffers)
    assert result.counters.tolist() == [counter]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)


@given(st.permutations(range(5)))
def test_clients_keep_their_shares_in_any_order(order: list[int]):
    updates = {str(i): Update(state(float(i), i * i / 3), size=i + 1) for i in range(5)}
    fold = WeightedMean(by_size, smoothing=1.0)(Server(state(0, 0)))
    for i in order:
        fold.add(str(i), updates[str(i)])
    outcome = fold.finish()
    result, shares = outcome.params, outcome.weights
    assert {client: shares[client] for client in updates} == {str(i): (i + 1) / 15 for i in range(5)}
    torch.testing.assert_close(result.weights, torch.tensor([40 / 15, 130 / 45]))


def test_clients_without_samples_do_not_count():
    result, shares = mean(state(7.0), Update(None, 0), Update(state(3.0), 5))
    assert result.weights.tolist() == [3.0]
    assert shares == {"0": 0.0, "1": 1.0}


def test_nobody_leaves_the_model_as_it_is():
    start = state(7.0, buffers=(2.0,), counter=4)
    assert mean(start) == (start, {})
    assert mean(start, Update(None, 0))[0] is start


def test_inputs_are_not_changed():
    start, own = state(1.0), state(2.0, buffers=(), counter=3)
    mean(start, Update(own, 2), Update(state(8.0), 1))
    assert start.weights.tolist() == [1.0]
    assert own.weights.tolist() == [2.0]
    assert own.counters.tolist() == [3]


def test_weights_may_depend_on_the_verdict():
    rule = WeightedMean(
        lambda diagnosis: lambda client, update: update.size * diagnosis[client].suspicion, smoothing=1.0
    )
    fold = rule(Server(state(0.0), diagnosis={"a": Verdict(suspicion=1.0), "b": Verdict(suspicion=0.5)}))
    fold.add("a", Update(state(1.0), 1))
    fold.add("b", Update(state(4.0), 1))
    outcome = fold.finish()
    result, shares = outcome.params, outcome.weights
    assert result.weights.item() == 2.0
    assert shares == {"a": 2 / 3, "b": 1 / 3}
