"""Clients trained together get what each would have got alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedpca.core import Net, Order, Server, Shard, Train, Verdict
from fedpca.loop import play
from fedpca.methods.base import base
from fedpca.models.build import build
from fedpca.models.flat import flatten, params_of
from fedpca.parts.client.augment import CropFlip, Mixup
from fedpca.parts.client.loss import LogitAdjustment, NearStart, Proximal
from fedpca.parts.client.step import GSAM, SharpWhereShown, descend
from fedpca.parts.client.train import LocalTraining
from fedpca.parts.sides import SidedPart
from fedpca.runs.check import check_experiment, method_of, plan_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate import batched
from fedpca.simulate.batched import layers_of, training_batching
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

SIZES = [18, 18, 17, 40, 1, 2, 33, 17]  # the last batch may be short, of one, or the only one


def shards(sizes=SIZES) -> dict[str, Shard]:
    rng = torch.Generator().manual_seed(0)
    return {
        str(i): Shard(
            torch.randint(0, 256, (size, 1, 8, 8), dtype=torch.uint8, generator=rng),
            torch.randint(0, 10, (size,), generator=rng),
        )
        for i, size in enumerate(sizes)
    }


def settings(**training: object) -> Experiment:
    table = {
        "rounds": 9,
        "training": {"batch": 16, **training},
        "method": {"fedpca-hs": {"warmup": 1}, "fedpca-hs-auto": {"warmup": 1}},
    }
    return check_experiment(table, "batched")


def played(experiment: Experiment, name: str, in_batches: bool, workers: int = 1, rounds: int = 3) -> list[Server]:
    crew = Workers([build("mlp", (1, 8, 8), 10, 0) for _ in range(workers)])
    method = method_of(experiment, name)
    clients = InProcess(method, shards(), crew, 0, in_batches)
    servers = list(play(method, clients, Server(params_of(crew.nets[0])), rounds))
    crew.close()
    return servers


@pytest.mark.parametrize("training", [{}, {"epochs": 3}, {"logit_adjustment": True}, {"momentum": 0.0, "lr": 0.2}])
@pytest.mark.parametrize("name", ["fedavg", "fedism", "fedga", "fedpca-hs", "fedpca-hs-auto", "median", "fedism+rfa",
                                  "fedprox", "scaffold", "fedga+scaffold", "fedprox+fedism"])  # fmt: skip
def test_together_is_as_alone_but_for_rounding(name: str, training: dict[str, object]):
    experiment = settings(**training)
    for one, many in zip(played(experiment, name, False), played(experiment, name, True), strict=True):
        assert (one.params.weights - many.params.weights).abs().max() < 1e-5
        assert one.weights == pytest.approx(many.weights, abs=1e-5) if one.weights else many.weights is None


def test_a_strong_pull_is_the_same_together():
    table = {"rounds": 9, "training": {"batch": 16, "epochs": 2}, "method": {"fedprox": {"mu": 5.0}}}
    experiment = check_experiment(table, "batched")
    alone, many = (played(experiment, "fedprox", in_batches)[-1].params.weights for in_batches in (False, True))
    plain = played(experiment, "fedavg", True)[-1].params.weights
    assert (alone - many).abs().max() < 1e-5
    assert (alone - plain).abs().max() > 1e-2


def test_a_step_of_one_side_sees_what_its_side_is_shown():
    sharp = GSAM(radius=0.5, alpha=0.0, growth=0.0)
    step = SidedPart("one", SharpWhereShown(sharp))
    weights = torch.tensor([[1.0, 2.0]])
    for name, expected in (("one/settled", sharp), ("settled", descend), ("two/settled", descend)):
        order = Order(1, 9, Verdict(), {name: torch.ones(1)})
        direction = step.direction(weights, lambda at: at**3, order)
        assert torch.equal(direction, expected.direction(weights, lambda at: at**3, order))


@pytest.mark.parametrize("in_batches", [False, True])
def test_logit_adjustment_leaves_a_class_without_labels_alone(in_batches: bool):
    """The last layer's row of a class that no client has stays as it is; that of another does not."""
    experiment, crew = settings(logit_adjustment=True, weight_decay=0.0), Workers([build("mlp", (1, 8, 8), 10, 0)])
    method = method_of(experiment, "fedavg")
    without = {client: Shard(shard.x, shard.y % 9) for client, shard in shards().items()}
    start = params_of(crew.nets[0])
    (server,) = play(method, InProcess(method, without, crew, 0, in_batches), Server(start), 1)
    crew.close()
    moved = (server.params.weights - start.weights)[-10 * 65 :]  # weights (10, 64), then biases (10,)
    rows = moved[:-10].view(10, -1).abs().amax(dim=1)
    assert rows[9] < 1e-6
    assert rows[:9].min() > 1e-3


def test_batches_and_so_the_bits_do_not_depend_on_the_number_of_workers(monkeypatch):
    monkeypatch.setattr(batched, "ANSWERED", 3)
    monkeypatch.setattr(batched, "TRAINED", 2)
    one, two = (played(settings(), "fedism", True, workers) for workers in (1, 2))
    assert all(torch.equal(a.params.weights, b.params.weights) for a, b in zip(one, two, strict=True))


def test_clients_are_really_trained_as_one(monkeypatch):
    calls: list[int] = []
    real = batched.train_clients
    monkeypatch.setattr(batched, "train_clients", lambda *given: calls.append(len(given[1])) or real(*given))
    played(settings(), "fedavg", True, rounds=1)
    played(settings(), "fedavg", False, rounds=1)
    assert calls == [len(SIZES)]


def plain(experiment: Experiment) -> LocalTraining:
    train = base(plan_of(experiment)).train
    assert isinstance(train, LocalTraining)
    return train


def batchable(net: Net, train: Train) -> bool:
    return training_batching(net, replace(base(plan_of(settings())), train=train)) is not None


def test_only_what_can_be_batched_is():
    net, experiment = build("mlp", (1, 8, 8), 10, 0), settings()
    usual = plain(experiment)
    assert batchable(net, usual)
    assert batchable(net, replace(usual, step=GSAM(radius=0.05, alpha=0.1, growth=0.0)))
    assert batchable(
        net,
        replace(
            usual,
            loss=SidedPart("one", LogitAdjustment(tau=1.0)),
            step=SidedPart("two", GSAM(radius=0.05, alpha=0.1, growth=0.0)),
        ),
    )
    for name in ("fedprox", "scaffold", "fedprox+fedism", "fedism+scaffold"):
        assert batchable(net, method_of(experiment, name).recipe(1).train), name
    assert not batchable(net, replace(usual, augment=CropFlip(pad=4)))
    assert not batchable(net, replace(usual, loss=NearStart(0.1, Proximal(0.1))))
    assert not batchable(net, replace(usual, blend=Mixup(alpha=1.0)))
    assert not batchable(net, replace(usual, loss=Proximal(0.1)))
    assert not batchable(net, replace(usual, step=lambda site, backward, optimizer: optimizer.step()))
    assert not batchable(net, plain(settings(optimizer="adam")))
    assert not batchable(net, lambda site, samples: None)
    assert not batchable(build("cnn-small", (1, 8, 8), 10, 0), usual)


@pytest.mark.parametrize(
    ("module", "layers"),
    [
        (nn.Sequential(nn.Linear(4, 3)), 1),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), 3),
        (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)), 0),
        (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3)), 0),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(), nn.Linear(3, 3)), 0),
        (nn.Sequential(nn.Linear(4, 3, bias=False)), 0),
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)), 0),
    ],
)
def test_layers_of_linear_networks_alone(module: nn.Sequential, layers: int):
    assert len(layers_of(flatten(module, module[-1]))) == layers


def frozen(module: nn.Sequential, *names: str) -> nn.Sequential:
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))


@pytest.mark.parametrize(
    "module",
    [
        frozen(two_layers(), "1.weight", "1.bias"),
        frozen(two_layers(), "3.bias"),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU(), nn.Linear(3, 3)),
    ],
)
def test_what_the_vector_does_not_hold_in_order_is_not_batched(module: nn.Sequential):
    assert layers_of(flatten(module, module[-1])) == []


def test_a_layer_that_somebody_listens_to_is_not_batched():
    module = two_layers()
    module[1].register_forward_hook(lambda *_: None)
    assert layers_of(flatten(module, module[-1])) == []


def test_training_of_ones_own_is_called():
    class Own(LocalTraining):
        def __call__(self, site, samples):
            return super().__call__(site, samples)

    class Renamed(LocalTraining):
        pass

    net, train = build("mlp", (1, 8, 8), 10, 0), plain(settings())
    assert not batchable(net, Own(**train.parts)), "it inherits the ability, but may do another thing"
    assert batchable(net, Renamed(**train.parts))


def test_clients_remember_vectors_of_their_own():
    crew = Workers([build("mlp", (1, 8, 8), 10, 0)])
    method = method_of(settings(), "fedce")
    clients = InProcess(method, shards([30, 30, 1, 1]), crew, 0)
    list(play(method, clients, Server(params_of(crew.nets[0])), 2))
    kept = [own["weights"] for own in clients.memory.values()]
    assert len({vector.untyped_storage().data_ptr() for vector in kept}) == 4
    assert all(vector.untyped_storage().nbytes() == vector.nbytes for vector in kept)
