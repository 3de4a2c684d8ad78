"""Server optimisers: the specification's numbers, and what each becomes where it does nothing."""

from dataclasses import replace

import pytest
import torch

from fedpca.core import Params, Server, Update
from fedpca.methods.bounded import bounded
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.optimise import ServerAdam, ServerMomentum, ServerStep
from fedpca.parts.server.weigh import by_size
from fedpca.settings.experiment import AggregationSettings

MEAN = WeightedMean(by_size, smoothing=1.0)
STEPS = [(0.5, -1.0), (0.1, 0.2), (-0.3, 0.0)]


def adam(correction="none", yogi=False, **changes) -> ServerAdam:
    plain = ServerAdam(0.01 if yogi else 0.1, 0.9, 0.99, 1e-3, correction, yogi)
    return replace(plain, **changes)


def played(optimiser, steps=STEPS, dtype=torch.float64) -> list[list[float]]:
    """The weights after each round, in which two clients of different sizes move by this on average."""
    server = Server(Params(torch.tensor([1.0, 2.0], dtype=dtype), torch.ones(1), torch.zeros(1, dtype=torch.int64)))
    seen = []
    for step in steps:
        fold, move = ServerStep(MEAN, optimiser)(server), torch.tensor(step, dtype=dtype)
        for client, size, share in (("a", 3, 0.5), ("b", 1, 2.5)):
            state = replace(server.params, weights=server.params.weights + share * move)
            fold.add(client, Update(state, size))
        outcome = fold.finish()
        assert outcome.weights == {"a": 0.75, "b": 0.25}
        server = Server(outcome.params, server.round + 1, memory=outcome.memory)
        seen.append(server.params.weights.tolist())
    return seen


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [
        (ServerMomentum(1.0, 0.9), [(1.5, 1), (2.05, 0.3), (2.245, -0.33)]),
        (adam("flower"), [(1.072790, 1.926489), (1.140385, 1.883054), (1.159229, 1.847396)]),
        (adam(yogi=True), [(1.009804, 1.990099), (1.020383, 1.983302), (1.023624, 1.977184)]),
        (adam(), [(1.098039, 1.900990), (1.204331, 1.832690), (1.236978, 1.770913)]),
        (adam("adam"), [(1.098039, 1.900990), (1.176956, 1.850280)]),
    ],
    ids=["fedavgm", "fedadam flower", "fedyogi", "fedadam", "fedadam adam"],
)
def test_the_specifications_rounds(optimiser, expected):
    for got, wanted in zip(played(optimiser), expected, strict=False):
        assert got == pytest.approx(wanted, abs=2e-6)


def test_what_is_fedavg():
    exact = [(1.5, 1.0), (1.6, 1.2), (1.3, 1.2)]
    assert played(ServerMomentum(1.0, 0.0)) == [pytest.approx(own) for own in exact]
    slow = played(adam(beta1=0.0, lr=1e6, tau=1e6))
    assert [value for own in slow for value in own] == pytest.approx([v for own in exact for v in own], abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_momentum_it_is_the_mean_to_the_bit(dtype: torch.dtype):
    rng = torch.Generator().manual_seed(0)
    start = Params(torch.randn(50, generator=rng).to(dtype), torch.ones(1), torch.zeros(1, dtype=torch.int64))
    moved = [replace(start, weights=torch.randn(50, generator=rng).to(dtype) * 10.0**k) for k in (-9, 0, 6)]
    outcomes = []
    for rule in (MEAN, ServerStep(MEAN, ServerMomentum(1.0, 0.0))):
        fold = rule(Server(start))
        for client, state in enumerate(moved):
            fold.add(str(client), Update(state, client + 1))
        outcomes.append(fold.finish())
    assert torch.equal(outcomes[0].params.weights, outcomes[1].params.weights)
    assert outcomes[1].memory == {}


@pytest.mark.parametrize("yogi", [False, True])
def test_without_memory_steps_are_signs_and_nothing_where_nothing_moves(yogi: bool):
    (after,) = played(adam(yogi=yogi, lr=0.25, beta1=0.0, beta2=0.0, tau=0.0), [(3.0, 0.0)])
    assert after == pytest.approx([1.25, 2.0])


def test_adam_and_yogi_begin_alike():
    one, two = (played(adam(yogi=yogi, lr=0.1))[0] for yogi in (False, True))
    assert one == two


def test_where_nobody_trained_nothing_is_forgotten():
    kept = {"moment": torch.ones(2)}
    server = Server(Params(torch.ones(2), torch.zeros(0), torch.zeros(0, dtype=torch.int64)), memory=kept)
    fold = ServerStep(MEAN, ServerMomentum(1.0, 0.9))(server)
    fold.add("a", Update(None, 0))
    outcome = fold.finish()
    assert outcome.params is server.params
    assert outcome.memory == kept


def test_buffers_are_averaged_and_not_stepped():
    start = Params(torch.zeros(1), torch.tensor([4.0]), torch.tensor([2]))
    fold = ServerStep(MEAN, ServerMomentum(1.0, 0.9))(Server(start, memory={"moment": torch.tensor([9.0])}))
    fold.add("a", Update(Params(torch.ones(1), torch.tensor([0.5]), torch.tensor([3])), 1))
    after = fold.finish().params
    assert (after.weights.item(), after.buffers.item(), after.counters.item()) == (pytest.approx(9.1), 0.5, 3)


def test_bounds_on_weights_are_around_the_mean_that_the_optimiser_goes_on_from():
    """Else a capped weight would put the plain mean in place of the optimiser's step."""
    method = bounded(compose("fedavgm", Plan(rounds=3)), AggregationSettings(max_weight=1.0, clip=9.0))
    server = Server(
        Params(torch.zeros(1), torch.zeros(0), torch.zeros(0, dtype=torch.int64)), memory={"moment": torch.ones(1)}
    )
    fold = method.recipe(1).aggregate(server)
    for client, value, size in (("a", 1.0, 9), ("b", 3.0, 1)):
        fold.add(client, Update(replace(server.params, weights=torch.tensor([value])), size))
    assert fold.finish().params.weights.item() == pytest.approx(0.9 + 2.0)
