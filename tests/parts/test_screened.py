"""q-FFL's dynamic step and screening by norm: the specification's numbers."""

import pytest
import torch

from fedpca.core import Params, Server, Update, Verdict
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.screened import DynamicStep, WithoutLongest
from fedpca.parts.server.weigh import ByLoss, by_size


def state(*weights: float, buffer: float = 0.0) -> Params:
    return Params(torch.tensor(weights).float(), torch.tensor([buffer]), torch.zeros(1, dtype=torch.int64))


def aggregated(rule, start: Params, states, losses, sizes=None):
    fold = rule(
        Server(start, diagnosis={str(i): Verdict(report={"loss": float(loss)}) for i, loss in enumerate(losses)})
    )
    for i, own in enumerate(states):
        fold.add(str(i), Update(own, sizes[i] if sizes else 1))
    outcome = fold.finish()
    return outcome.params, outcome.weights


@pytest.mark.parametrize(("q", "expected"), [(0, 0.7), (1, 0.803571), (2, 0.861842)])
def test_the_specifications_dynamic_steps(q: float, expected: float):
    params, weights = aggregated(DynamicStep(q, 0.1), state(1.0), [state(0.9), state(0.5)], [1, 2])
    assert params.weights.item() == pytest.approx(expected, abs=1e-6)
    assert weights is None


def test_buffers_are_averaged_and_not_stepped():
    states = [state(0.9, buffer=2.0), state(0.5, buffer=4.0)]
    params, _ = aggregated(DynamicStep(1, 0.1), state(1.0, buffer=9.0), states, [1, 2], sizes=[3, 1])
    assert params.buffers.item() == 2.5


def test_nobody_keeps_the_model():
    start = state(1.0)
    assert aggregated(DynamicStep(1, 0.1), start, [], [])[0] is start


LOCALS = [state(1, 0), state(0, 3), state(2, 0), state(3, 4), state(0, 0.5)]
LOSSES = [0.5, 2, 1, 4, 0.25]


def test_the_specifications_screening():
    rule = WithoutLongest(2, WeightedMean(ByLoss(1, by_size=True), smoothing=1.0))
    params, weights = aggregated(rule, state(0, 0), LOCALS, LOSSES)
    assert params.weights.tolist() == pytest.approx([1.428571, 0.071429], abs=1e-6)
    assert list(weights.values()) == pytest.approx([2 / 7, 0, 4 / 7, 0, 1 / 7])
    assert list(weights) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [1, 3, 0, 2, 4]])
def test_the_order_of_arrival_does_not_matter(order: list[int]):
    rule = WithoutLongest(2, WeightedMean(ByLoss(1, by_size=True), smoothing=1.0))
    params, _ = aggregated(rule, state(0, 0), [LOCALS[i] for i in order], [LOSSES[i] for i in order])
    assert params.weights.tolist() == pytest.approx([1.428571, 0.071429], abs=1e-6)


def test_buffers_do_not_count_for_length():
    loud = [state(1, 0, buffer=1e6), state(0, 3), state(2, 0)]
    _, weights = aggregated(WithoutLongest(1, WeightedMean(by_size, smoothing=1.0)), state(0, 0), loud, [1, 1, 1])
    assert [client for client, weight in weights.items() if weight == 0] == ["1"]


def test_screening_everybody_keeps_the_model():
    start = state(0, 0)
    assert aggregated(WithoutLongest(9, WeightedMean(by_size, smoothing=1.0)), start, LOCALS, LOSSES)[0] is start
