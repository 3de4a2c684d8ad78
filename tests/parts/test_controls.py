"""SCAFFOLD: the specification's numbers on two parabolas, and what must hold for any clients."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedpca.core import Method, Net, Server, Shard, Update
from fedpca.errors import UserError
from fedpca.loop import play
from fedpca.methods.base import base, one_stage
from fedpca.methods.combine import plus
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.models.build import build
from fedpca.models.flat import flatten, params_of
from fedpca.parts.pace import Pace
from fedpca.settings.experiment import TrainingSettings
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

PLAIN = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "batch": 2, "epochs": 2}


class Point(nn.Module):
    """A model that is one number, whatever the images."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        return self.x.expand(len(images), 1)


def parabola(site, samples):
    """x^2 / 2 of the client with labels 0, 3 (x - 4)^2 / 2 of that with labels 1; where a client's labels differ, 0."""
    a, b = ((1.0, 0.0), (3.0, 4.0))[int(samples.labels[0])]
    return lambda batch: a * (batch.logits - b).square().mean() / 2


def on_parabolas(name: str, rounds: int, clients=(0, 1), share: float = 1.0, **training):
    """The server after each round, and the clients; two steps each round."""
    plan = Plan(rounds, TrainingSettings(**{**PLAIN, **training}), clients=len(clients), participation=share)
    method = compose(name, plan)
    recipe = method.recipe(1)
    method = one_stage(replace(recipe, train=replace(recipe.train, loss=parabola)))
    net = flatten(Point(), None)
    shards = {str(i): Shard(torch.zeros(2, 1, 1, 1), torch.tensor([kind] * 2)) for i, kind in enumerate(clients)}
    answering = InProcess(method, shards, Workers([net]), seed=0)
    return list(play(method, answering, Server(params_of(net)), rounds)), answering


def values(servers) -> list[float]:
    return [server.params.weights.item() for server in servers]


def test_the_specifications_rounds():
    (one, two, three), _ = on_parabolas("scaffold", 3)
    assert values([one, two, three]) == pytest.approx([1.67, 2.1485, 2.458465], abs=1e-6)
    assert [server.shown["control"].item() for server in (one, two)] == pytest.approx([-3.35, -2.3925], abs=1e-5)
    assert values(on_parabolas("fedavg", 3)[0]) == pytest.approx([1.67, 2.1055, 2.388575], abs=1e-6)


def test_the_specifications_controls_of_the_clients():
    for rounds, expected in ((1, (0.95, -7.65)), (2, (1.8015, -6.5865))):
        _, clients = on_parabolas("scaffold", rounds)
        assert [own["control"].item() for own in clients.memory.values()] == pytest.approx(expected, abs=1e-5)
        assert all(own.keys() == {"control"} for own in clients.memory.values()), "nothing else is left"
    _, clients = on_parabolas("scaffold", 1)
    ends = [1 - 0.1 * 2 * own["control"].item() for own in clients.memory.values()]  # theta - lr n c_k, c being 0
    assert ends == pytest.approx((0.81, 2.53))


def test_the_specifications_momentum():
    (server,), clients = on_parabolas("scaffold", 1, momentum=0.9)
    assert server.params.weights.item() == pytest.approx((0.72 + 3.34) / 2)
    assert [own["control"].item() for own in clients.memory.values()] == pytest.approx((0.965517, -8.068966), abs=1e-5)


@pytest.mark.parametrize(("momentum", "lr", "limit"), [(0.0, 0.1, 3.0), (0.9, 0.02, 3.0)])
def test_it_ends_at_the_optimum_where_fedavg_does_not(momentum: float, lr: float, limit: float):
    servers, _ = on_parabolas("scaffold", 300, momentum=momentum, lr=lr)
    assert values(servers)[-1] == pytest.approx(limit, abs=1e-3)
    if momentum == 0:
        assert values(on_parabolas("fedavg", 300)[0])[-1] == pytest.approx(2.914286, abs=1e-5)


def test_the_lengths_of_the_specification():
    pace = Pace(lr=1.0, momentum=0.9, batch=16, epochs=3)
    assert [pace.length(n) for n in (1, 2, 3)] == pytest.approx([1, 2.9, 5.61])
    assert [pace.steps(size) for size in (0, 1, 2, 16, 17, 18, 33)] == [0, 0, 3, 3, 3, 6, 6], "no batch of one"


def test_one_client_alone_is_fedavg_and_so_is_the_first_round():
    one, plain = (values(on_parabolas(name, 5, clients=(1,))[0]) for name in ("scaffold", "fedavg"))
    assert one == pytest.approx(plain, abs=1e-6)
    assert on_parabolas("scaffold", 1)[0][0].params.weights == on_parabolas("fedavg", 1)[0][0].params.weights


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_common_control_is_the_mean_of_the_clients(share: float):
    """Of all of them: those who never took part have none yet, which counts as zero."""
    servers, clients = on_parabolas("scaffold", 5, clients=(0, 1, 1, 0), share=share)
    own = [memory["control"].item() for memory in clients.memory.values() if memory]
    assert len(own) == 4 or share < 1
    assert servers[-1].shown["control"].item() == pytest.approx(sum(own) / 4, abs=1e-5)


# On digits


def crew(workers: int = 1) -> Workers:
    return Workers([build("mlp", (1, 4, 4), 3, 0) for _ in range(workers)])


def shards(count: int = 5, size: int = 20) -> dict[str, Shard]:
    rng = torch.Generator().manual_seed(0)
    return {
        str(i): Shard(torch.rand(size + i, 1, 4, 4, generator=rng), torch.randint(0, 3, (size + i,), generator=rng))
        for i in range(count)
    }


def on_images(method: Method, rounds: int = 3, net: Net | None = None) -> list[Server]:
    workers = Workers([net]) if net else crew()
    clients = InProcess(method, shards(), workers, seed=0)
    return list(play(method, clients, Server(params_of(workers.nets[0])), rounds))


PLAN = Plan(3, TrainingSettings(batch=8, lr=0.05))


def test_a_server_step_of_half_the_length_goes_half_as_far():
    start = params_of(crew().nets[0]).weights
    whole, half = (
        on_images(compose("scaffold", PLAN, {"scaffold": {"lr": lr}}), 1)[0].params.weights - start for lr in (1.0, 0.5)
    )
    torch.testing.assert_close(half, whole / 2)


def test_it_refuses_steps_that_are_rescaled():
    with pytest.raises(UserError, match=r"scaffold: training.optimizer must be sgd, got adam"):
        compose("scaffold", Plan(3, TrainingSettings(optimizer="adam")))


def test_a_method_that_takes_its_step_away_is_refused_unless_scaffold_is_named_second():
    with pytest.raises(UserError, match=r"scaffold needs the `step` of its own local training, .*name scaffold second"):
        compose("scaffold+fedism", PLAN)
    servers = on_images(compose("fedism+scaffold", PLAN))
    assert servers[-1].shown["scaffold/control"].abs().max() > 0


@pytest.mark.parametrize("first", [True, False])
def test_inside_a_combination_the_control_is_the_mean_of_the_clients(first: bool):
    method = compose("scaffold+median" if first else "median+scaffold", PLAN)
    clients = InProcess(method, shards(), crew(), seed=0)
    *_, server = play(method, clients, Server(params_of(clients.workers.nets[0])), 3)
    own = torch.stack([memory["scaffold/control"] for memory in clients.memory.values()])
    torch.testing.assert_close(server.shown["scaffold/control"], own.mean(dim=0), atol=1e-5, rtol=1e-3)


def test_twice_itself_is_itself():
    alone = compose("scaffold", PLAN)
    twice = plus(alone, alone, base(PLAN), 0.5)
    for one, two in zip(on_images(alone), on_images(twice), strict=True):
        assert torch.equal(one.params.weights, two.params.weights)


def test_where_nobody_trained_the_control_stays():
    rule = compose("scaffold", PLAN).recipe(1).aggregate
    shown = {"control": torch.ones(2)}
    fold = rule(Server(params_of(flatten(nn.Linear(1, 1), None)), shown=shown))
    fold.add("a", Update(None, 0))
    assert torch.equal(fold.finish().shown["control"], shown["control"])
