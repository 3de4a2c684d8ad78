"""The two ends of the scale: every client by itself, and all data in one place."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import fedpca
from fedpca.core import Params, Server, Shard
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.data.truth import Truth
from fedpca.errors import SettingsError, UserError
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client.own import own_model
from fedpca.runs import folder as record
from fedpca.runs.cell import Cell
from fedpca.runs.check import check_experiment, method_of
from fedpca.runs.evaluate import evaluate, evaluate_own, members
from fedpca.settings.experiment import Experiment
from fedpca.simulate.attack.clients import under_attack
from fedpca.simulate.clients import InProcess
from fedpca.simulate.pooled import pooled
from fedpca.simulate.workers import Workers
from fedpca.sites.deployment import read_deployment
from tests.runs.test_run import rounds, run, same_run


def settings(name: str, **changes: object) -> Experiment:
    table = {
        "rounds": 4,
        "seeds": [0],
        "methods": [name],
        "data": {"clients": 5, "train_images": 150, "test_images": 60},
        "rare": {"share": 0.2, "sigma": 0.5},
        "noise": {"clients": 0.2, "labels": 1.0},
        "model": {"name": "mlp"},
        "training": {"batch": 16, "lr": 0.1, "epochs": 2},
        **changes,
    }
    return check_experiment(table, "apart")


@cache
def federation() -> Federation:
    experiment = settings("local")
    return federate(experiment, load(experiment.data))


def playing(name: str, shards, workers: int = 1, rounds: int = 4) -> tuple[Server, InProcess]:
    crew = Workers([build("mlp", federation().shape, 10, 0) for _ in range(workers)])
    clients = InProcess(method_of(settings(name)), shards, crew, seed=0, batched=False)
    *_, server = play(clients.method, clients, Server(params_of(crew.nets[0])), rounds)
    crew.close()
    return server, clients


def joined(shards) -> Shard:
    """All data in one, copied."""
    every = [shard.x[torch.arange(len(shard.y))] for shard in shards.values()]
    return Shard(torch.cat(every), torch.cat([shard.y for shard in shards.values()]))


# All data in one place


def test_central_is_fedavg_with_one_client_that_has_all_data_their_wrong_labels_included():
    shards = federation().shards
    one, _ = playing("central", shards)
    two, _ = playing("fedavg", {"all": joined(shards)})
    assert torch.equal(one.params.weights, two.params.weights)
    assert one.weights is None, "its one client is none of those in the tables"
    guilty = federation().truth.mislabeled
    assert guilty
    assert all((shards[client].y != federation().truth.labels[client]).all() for client in guilty)


def test_images_stay_where_they_are_until_a_batch_asks_for_them():
    shards = federation().shards
    one, whole = pooled(list(shards.values())), joined(shards)
    assert len(one.x) == len(whole.y) == len(one.y)
    assert torch.equal(one.y, whole.y)
    rng = torch.Generator().manual_seed(0)
    for count in (1, 7, 150, 400):
        picks = torch.randint(len(whole.y), (count,), generator=rng)
        assert torch.equal(one.x[picks], whole.x[picks])


def test_poisoned_data_are_among_those_in_one_place():
    """An attack changes what a client has, wherever that is trained on."""
    attacked = settings("central", attack={"kind": "backdoor", "clients": ["1"]})
    crew = Workers([build("mlp", federation().shape, 10, 0)])
    clients = InProcess(method_of(attacked), federation().shards, crew, seed=0)
    crowd = under_attack(clients, attacked.attack, ["1"], 10)
    start = Server(params_of(crew.nets[0]))
    (honest,), (spoiled,) = (list(play(clients.method, some, start, 1)) for some in (clients, crowd))
    assert not torch.equal(honest.params.weights, spoiled.params.weights)


# Every client by itself


def test_each_client_gets_what_training_alone_gives():
    shards = federation().shards
    server, clients = playing("local", shards)
    start = params_of(build("mlp", federation().shape, 10, 0))
    assert torch.equal(server.params.weights, start.weights), "nobody sends anything"
    assert server.weights is None
    for client, shard in shards.items():
        alone, _ = playing("fedavg", {client: shard})
        own = own_model(clients.memory[client], server.params)
        assert torch.equal(own.weights, alone.params.weights)


def test_who_has_not_trained_yet_has_the_common_start():
    start = Params(torch.ones(2), torch.zeros(1), torch.zeros(1), lengths=(2, 1))
    assert own_model({}, start) == start


def test_workers_make_no_difference():
    (_, one), (_, two) = (playing("local", federation().shards, workers) for workers in (1, 2))
    for client, memory in one.memory.items():
        assert all(torch.equal(memory[name], two.memory[client][name]) for name in memory)


def test_a_test_group_is_for_the_models_of_its_own_clients():
    truth = Truth(rare=("c",), mislabeled=("a",), labels={})
    models = dict.fromkeys("abc")
    assert members("rare", models, truth) == ["c"]
    assert members("common", models, truth) == ["a", "b"], "the mislabeled are among them"
    assert members("b", models, truth) == ["b"], "its own rows"
    assert members("women", models, truth) == ["a", "b", "c"], "a group of nobody's own"
    assert members("common", models, replace(truth, rare=("a", "b", "c"))) == ["a", "b", "c"]


def test_it_is_tested_by_the_mean_of_the_clients_models():
    whole = federation()
    _, clients = playing("local", whole.shards)
    pool = Workers([build("mlp", whole.shape, 10, 1)])
    start = params_of(pool.nets[0])
    models = {client: own_model(memory, start) for client, memory in clients.memory.items()}
    found = evaluate_own(pool, models, whole.tests, whole.truth, "acc")
    for group, own in (("rare", ["4"]), ("common", ["0", "1", "2", "3"])):
        each = [evaluate(pool, models[client], whole.tests, "acc")[group]["acc"] for client in own]
        assert found[group]["acc"] == pytest.approx(np.mean(each))


@pytest.mark.parametrize("name", ["local", "central"])
def test_a_run_is_recorded_and_goes_on_where_it_was_interrupted(name: str, tmp_path: Path):
    whole = run(settings(name), tmp_path / "whole")

    def stop(cell: Cell, line: dict) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings(name), tmp_path / "cut", watch=stop)
    cut = run(settings(name), tmp_path / "cut")
    assert same_run(whole.folder, cut.folder)
    *_, last = rounds(whole.folder)
    assert last["groups"].keys() == {"common", "rare"}
    assert (last["weights"], last["clients"]["weight"]) == (None, None)
    assert last["clients"]["id"] == list(federation().shards)
    assert len(record.read_about(whole.folder)["clients"]["size"]) == 5


# Where they make no sense


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "local+d",
            "'local\\+d': local has no federation: each client trains a model of its own, so it cannot be comb",
        ),
        ("fedavg+local", "'fedavg\\+local': local has no federation"),
        ("central+median", "'central\\+median': central has no federation: it trains on all data in one place, so"),
    ],
)
def test_they_go_with_no_other_method(name: str, said: str):
    with pytest.raises(SettingsError, match=said):
        settings(name)


@pytest.mark.parametrize("name", ["local", "central"])
def test_real_sites_do_not_play_them(name: str):
    with pytest.raises(SettingsError, match=rf"site: methods: {name} has no federation: .* it is for simulations only"):
        read_deployment({"methods": name, "deploy": {"sites": 2}}, "site")


def test_what_looks_at_the_one_model_is_refused_where_there_are_many():
    with pytest.raises(
        SettingsError, match=r"evaluation.features look at the one model .*, and local ends with one for"
    ):
        settings("local", evaluation={"features": 5})
    assert settings("central", evaluation={"features": 5})
    clients = {"a": (np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 1, 0, 1]))}
    with pytest.raises(UserError, match=r"fedpca.train: local has no federation: .* a result holds one model"):
        fedpca.train(clients, "mlp", "local", rounds=1, progress=False)
