from dataclasses import replace

import pytest
import torch

from fedpca.core import Order, Recipe, Server, Shard, Site, Update, Verdict
from fedpca.data.federation import Federation
from fedpca.errors import UserError
from fedpca.loop import play
from fedpca.methods.base import base, one_stage
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client.report import mean_loss
from fedpca.runs.check import method_of, plan_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers


def final(federation: Federation, recipe: Recipe, workers: int, model: str = "cnn-small", rounds: int = 3) -> Server:
    crew = Workers([build(model, federation.shape, 10, 0) for _ in range(workers)])
    clients = InProcess(one_stage(recipe), federation.shards, crew, seed=4)
    *_, server = play(clients.method, clients, Server(params_of(crew.nets[0])), rounds)
    crew.close()
    return server


@pytest.mark.parametrize("model", ["mlp", "cnn-small"])
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_gives_the_same_bits(small: Experiment, federation: Federation, model: str, workers: int):
    recipe = replace(base(plan_of(small)), report=mean_loss)
    one, many = (final(federation, recipe, count, model) for count in (1, workers))
    assert torch.equal(one.params.weights, many.params.weights)
    assert one.diagnosis == many.diagnosis
    assert one.weights == many.weights


def test_batch_norm_too(small: Experiment, federation: Federation):
    one, two = (final(federation, base(plan_of(small)), count, "resnet18", rounds=1) for count in (1, 2))
    for name in ("weights", "buffers", "counters"):
        assert torch.equal(getattr(one.params, name), getattr(two.params, name)), name
    assert (one.params.counters == 3).all()  # 40 images in batches of 16


def test_the_seed_changes_the_batches(small: Experiment, federation: Federation):
    crew = Workers([build("mlp", federation.shape, 10, 0)])
    results = []
    for seed in (0, 0, 1):
        clients = InProcess(method_of(small, "fedavg"), federation.shards, crew, seed)
        start = Server(params_of(build("mlp", federation.shape, 10, 0)))
        results.append(next(iter(play(clients.method, clients, start, 1))).params.weights)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_clients_remember_what_is_theirs(small: Experiment, federation: Federation):
    def counting(site: Site, samples: object) -> Update:
        site.memory["rounds"] = site.memory.get("rounds", torch.zeros(1)) + 1
        return Update(None, 0)

    crew = Workers([build("mlp", federation.shape, 10, 0) for _ in range(2)])
    clients = InProcess(one_stage(replace(base(plan_of(small)), train=counting)), federation.shards, crew, seed=0)
    *_, _ = play(clients.method, clients, Server(params_of(crew.nets[0])), 3)
    assert [own["rounds"].item() for own in clients.memory.values()] == [3.0] * 6


@pytest.mark.parametrize("workers", [1, 2])
def test_a_fault_in_a_clients_code_ends_the_run_with_its_own_trace(small, federation, workers: int):
    def broken(site: Site) -> None:
        raise ZeroDivisionError(f"in round {site.order.round}")

    with pytest.raises(ZeroDivisionError, match="in round 1"):
        final(federation, replace(base(plan_of(small)), select=broken), workers)


def test_a_client_that_diverges_is_left_out_by_name(small: Experiment, federation: Federation):
    shards = {**federation.shards}
    shards["2"] = Shard(torch.full((40, 1, 8, 8), float("nan")), shards["2"].y)
    crew = Workers([build("mlp", federation.shape, 10, 0)])
    clients = InProcess(method_of(small, "fedavg"), shards, crew, seed=0)
    *_, server = play(clients.method, clients, Server(params_of(crew.nets[0])), 2)
    assert server.left_out == {"2": "its weights are not finite"}
    assert server.params.weights.isfinite().all()


def test_updates_under_way_do_not_grow_with_the_clients(small: Experiment, federation: Federation):
    """While the server sums, no more than two updates per worker exist besides."""
    alive, most = set(), 0

    def watched(site: Site, samples: object) -> Update:
        update = base(plan_of(small)).train(site, samples)
        alive.add(id(update))
        return update

    shards = {str(i): federation.shards[str(i % 6)] for i in range(60)}
    crew = Workers([build("mlp", federation.shape, 10, 0) for _ in range(2)])
    clients = InProcess(one_stage(replace(base(plan_of(small)), train=watched)), shards, crew, seed=0)
    orders = dict.fromkeys(shards, Order(1, 1, Verdict()))
    taken = 0
    for _ in clients.train(params_of(crew.nets[0]), orders):
        taken += 1
        most = max(most, len(alive) - taken)
    crew.close()
    assert taken == 60
    assert most <= 2 * 2 + 1


def test_dropout_draws_by_place_and_refuses_workers(small: Experiment, federation: Federation):
    from torch import nn

    from fedpca.models.flat import flatten

    def net():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(), nn.Linear(32, 10)).eval()
        module.register_forward_pre_hook(lambda _, inputs: (inputs[0].float() / 255,))
        return flatten(module, module[-1], draws=True)

    results = []
    for _ in range(2):
        torch.rand(7)
        crew = Workers([net()])
        clients = InProcess(method_of(small, "fedavg"), federation.shards, crew, seed=0)
        *_, server = play(clients.method, clients, Server(params_of(crew.nets[0])), 2)
        results.append(server.params.weights)
    assert torch.equal(*results)
    with pytest.raises(UserError, match="--workers 1"):
        InProcess(method_of(small, "fedavg"), federation.shards, Workers([net(), net()]), seed=0)


HEADLESS = "tests.models.test_build:Convolutional"


@pytest.mark.parametrize("name", ["fedpca-d", "fedpca-hs-auto", "fedavg+d", "qfedavg+fedpca-d"])
def test_methods_that_need_features_refuse_a_model_without_any_at_the_start(small: Experiment, federation, name: str):
    crew, method = Workers([build(HEADLESS, federation.shape, 10, 0)]), method_of(small, name)
    with pytest.raises(UserError, match=r"needs the model's features.*set model\.features"):
        InProcess(method, federation.shards, crew, seed=0)
    named = Workers([build(HEADLESS, federation.shape, 10, 0, features="pool")])
    assert InProcess(method, federation.shards, named, seed=0).ids


@pytest.mark.parametrize("name", ["fedavg", "qfedavg", "fedce", "fedga", "fedism", "median", "fedcorr", "fednoro"])
def test_methods_that_need_no_features_run_with_any_model(small: Experiment, federation: Federation, name: str):
    settings = Experiment.model_validate({**small.model_dump(), "method": {"fednoro": {"warmup": 1}}})
    crew = Workers([build(HEADLESS, federation.shape, 10, 0)])
    clients = InProcess(method_of(settings, name), federation.shards, crew, seed=0)
    *_, server = play(clients.method, clients, Server(params_of(crew.nets[0])), 2)
    assert server.left_out == {}


def test_dispersion_is_that_of_the_submodule_that_is_named(small: Experiment, federation: Federation):
    settings = Experiment.model_validate({**small.model_dump(), "method": {"fedpca-hs": {"warmup": 0}}})
    crew = Workers([build(HEADLESS, federation.shape, 10, 0, features="pool")])
    clients = InProcess(method_of(settings, "fedpca-hs"), federation.shards, crew, seed=0)
    *_, server = play(clients.method, clients, Server(params_of(crew.nets[0])), 2)
    assert all("dispersion" in verdict.report for verdict in server.diagnosis.values())
