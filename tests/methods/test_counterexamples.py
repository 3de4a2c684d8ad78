"""Federations in which an earlier `auto` judged innocents, dropped them for good, or called common clients rare."""

from dataclasses import replace

import numpy as np
import pytest

from fedpca.core import Server
from fedpca.data.datasets import Dataset, digits
from fedpca.data.federation import Federation, federate
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.runs.check import check_experiment, method_of
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

HALVES, TENTH = (0,) * 5 + (1,) * 5, (1,) + (0,) * 9  # what each digit becomes
LAST = 10


def with_classes(table: tuple[int, ...] | None) -> Dataset:
    dataset = digits()
    if table is None:
        return dataset
    parts = [replace(part, labels=np.array(table)[part.labels]) for part in (dataset.train, dataset.test)]
    return replace(dataset, train=parts[0], test=parts[1], classes=("0", "1"))


def federation_of(
    data: dict, rare: dict | None = None, noise: dict | None = None, table: tuple[int, ...] | None = None, **more
):
    settings = {"data": data, "rare": rare or {}, "noise": noise or {}, "model": {"name": "mlp"}, "rounds": 30}
    training = {}
    chosen = check_experiment({**settings, "methods": ["fedpca-d-auto"], "training": training, **more}, "test")
    return chosen, federate(chosen, with_classes(table))


def servers(chosen, federation: Federation, start: Server | None = None, rounds: int = 30):
    net = build("mlp", federation.shape, len(federation.classes), chosen.seeds[0])
    method = method_of(chosen, "fedpca-d-auto")
    clients = InProcess(method, federation.shards, Workers([net]), chosen.seeds[0])
    return list(play(method, clients, start or Server(params_of(net)), rounds))


def in_group(server: Server, group: str) -> set[str]:
    return {client for client, verdict in server.diagnosis.items() if verdict.group == group}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_rare_client_is_not_dropped_where_there_are_two_classes(seed: int):
    data, rare = {"clients": 20, "seed": seed}, {"share": 0.2, "sigma": 0.5}
    played = servers(*federation_of(data, rare, table=HALVES, seeds=[seed]))
    assert all(not in_group(server, "mislabeled") for server in played[-LAST:])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("alpha", "warmup"), [(0.3, 10), (0.2, 5)])
def test_an_honest_client_with_nearly_one_class_is_not_dropped(alpha: float, warmup: int, seed: int):
    data = {"clients": 20, "split": "dirichlet", "alpha": alpha, "min_images": 10, "seed": seed}
    played = servers(*federation_of(data, method={"fedpca-d-auto": {"warmup": warmup}}, seeds=[seed]))
    assert all(not in_group(server, "mislabeled") for server in played[-LAST:])


@pytest.mark.parametrize("seed", [0, 1])
def test_common_clients_are_not_dropped_where_few_images_are_positive(seed: int):
    played = servers(*federation_of({"clients": 10, "seed": seed}, {"share": 0.2, "sigma": 0.5}, table=TENTH))
    assert all(not in_group(server, "mislabeled") for server in played[-LAST:])


def test_two_classes_with_wrong_labels_are_still_found():
    chosen, federation = federation_of({"clients": 20}, noise={"clients": 0.4, "labels": 0.3}, table=HALVES)
    for server in servers(chosen, federation)[-LAST:]:
        assert in_group(server, "mislabeled") == set(federation.truth.mislabeled)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nobody_is_called_rare_among_five_clients_that_are_alike(seed: int):
    played = servers(*federation_of({"clients": 5, "seed": seed}, seeds=[seed]))
    assert all(not in_group(server, "rare") for server in played)


@pytest.mark.parametrize("table", [None, HALVES])
def test_a_wrong_judgement_does_not_confirm_itself(table: tuple[int, ...] | None):
    """A rare client that is dropped without cause is never learned; it must be freed all the same."""
    chosen, federation = federation_of({"clients": 20}, {"share": 0.2, "sigma": 0.5}, table=table)
    judged = federation.truth.rare[0]
    before = servers(chosen, federation, rounds=12)[-1]
    wronged = before.diagnosis[judged].having(group="mislabeled", suspicion=0.9, notes={})
    start = replace(before, diagnosis={**before.diagnosis, judged: wronged})
    after = servers(chosen, federation, start)
    assert judged in in_group(after[0], "mislabeled"), "one round does not free a client"
    assert all(judged not in in_group(server, "mislabeled") for server in after[5:])
