"""The experiment's honesty: nothing that runs on a client or the server can reach the truth."""

import gc
from types import ModuleType

import pytest
import torch

from fedpca.core import Order, Server, Site, Verdict
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.data.noise_kind import NoiseData
from fedpca.data.truth import Truth
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import method_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers


def reachable(start: object) -> list[object]:
    """Every object that can be got at from one, modules and types aside."""
    seen, queue, found = set(), [start], []
    while queue:
        thing = queue.pop()
        if id(thing) in seen or isinstance(thing, ModuleType | type):
            continue
        seen.add(id(thing))
        found.append(thing)
        if not callable(thing) or hasattr(thing, "__closure__") or hasattr(thing, "__dataclass_fields__"):
            inner = gc.get_referents(thing)
            # a function's globals are its module's names: the layers test looks at those
            queue += [i for i in inner if not (isinstance(i, dict) and "__builtins__" in i)]
    return found


def clients_of(small: Experiment, federation: Federation) -> InProcess:
    workers = Workers([build("mlp", federation.shape, 10, 0)])
    return InProcess(method_of(small, "fedavg"), federation.shards, workers, seed=0)


def holds_truth(things: list[object], truth: Truth) -> bool:
    """Whether the truth itself, or any array of true labels where labels were flipped, is among them."""
    secret = {truth.labels[client].data_ptr() for client in truth.mislabeled}
    return any(
        isinstance(thing, Truth)
        or thing is truth.wrong_share
        or (isinstance(thing, torch.Tensor) and thing.data_ptr() in secret)
        for thing in things
    )


def test_the_walk_finds_the_truth_where_it_is(federation: Federation):
    assert federation.truth.mislabeled
    assert holds_truth(reachable(federation), federation.truth)
    assert holds_truth(reachable({"deep": [(federation.truth.labels,)]}), federation.truth)
    assert federation.truth.wrong_share.keys() == federation.shards.keys()
    assert holds_truth(reachable({"deep": [(federation.truth.wrong_share,)]}), federation.truth)


def test_clients_cannot_reach_the_truth(small: Experiment, federation: Federation):
    clients = clients_of(small, federation)
    found = reachable(clients)
    assert any(thing is federation.shards["0"].y for thing in found), "the walk must reach the clients' own data"
    assert not holds_truth(found, federation.truth)
    shard = federation.shards["0"]
    net = clients.workers.nets[0]
    site = Site(net, shard.x, shard.y, {}, Order(1, 3, Verdict()), torch.Generator())
    assert not holds_truth(reachable(site), federation.truth)


@pytest.mark.parametrize("kind", [{"kind": "confusion", "matrix": "model"}, {"kind": "instance"}])
def test_noise_that_looks_at_true_labels_leaves_none_of_them_with_clients(small: Experiment, kind: dict[str, str]):
    noise = small.noise.model_copy(update={**kind, "others_labels": 0.1})
    experiment = small.model_copy(update={"noise": noise})
    federation = federate(experiment, load(experiment.data))
    found = reachable(clients_of(small, federation))
    assert not holds_truth(found, federation.truth)
    assert not any(isinstance(thing, NoiseData) for thing in found)


def test_the_server_cannot_reach_the_truth(small: Experiment, federation: Federation):
    clients = clients_of(small, federation)
    for server in play(clients.method, clients, Server(params_of(clients.workers.nets[0])), 2):
        assert not holds_truth(reachable(server), federation.truth)
