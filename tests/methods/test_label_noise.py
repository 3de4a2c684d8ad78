"""The rivals against label noise on clients that are hardly any, in combinations, and after a restart."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from fedpca.core import Server, Shard
from fedpca.loop import play
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.methods.registry import METHODS, facts
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.settings.experiment import TrainingSettings
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

NAMES = ["sce", "fedlsr", "fedelc", "feddiv", "fedrn", "na-fedavg", "rhfl"]
SHORT = {name: {"warmup": 1} for name in ("fedelc", "feddiv", "fedrn", "fednoro")} | {"na-fedavg": {"round": 2}}


@cache
def odd_shards() -> dict[str, Shard]:
    """A client with one image, one with one class, one with the same image throughout, and two like others."""
    rng = torch.Generator().manual_seed(0)

    def images(count: int) -> torch.Tensor:
        return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=rng)

    def labels(count: int) -> torch.Tensor:
        return torch.randint(0, 4, (count,), generator=rng)

    same = images(1).expand(9, 1, 8, 8).clone()
    return {
        "one image": Shard(images(1), torch.tensor([2])),
        "one class": Shard(images(12), torch.zeros(12, dtype=torch.int64)),
        "one image many times": Shard(same, torch.full((9,), 3)),
        "usual": Shard(images(20), labels(20)),
        "other": Shard(images(25), labels(25)),
    }


def played(name: str, rounds: int = 5, participation: float = 1.0, **shards: Shard) -> list[Server]:
    plan = Plan(rounds, TrainingSettings(batch=8, lr=0.1), participation=participation)
    method, crew = compose(name, plan, SHORT), Workers([build("mlp", (1, 8, 8), 4, seed=0)])
    clients = InProcess(method, shards or odd_shards(), crew, seed=0)
    return list(play(method, clients, Server(params_of(crew.nets[0])), rounds))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_clients_that_are_hardly_any_do_no_harm(name: str, participation: float):
    for server in played(name, participation=participation):
        assert server.params.weights.isfinite().all()
        assert not server.left_out
        assert sum(server.weights.values()) == pytest.approx(1)
        assert min(server.weights.values()) >= 0


@pytest.mark.parametrize("name", NAMES)
def test_one_client_alone_can_play(name: str):
    *_, server = played(name, usual=odd_shards()["usual"])
    assert server.params.weights.isfinite().all()
    assert server.weights == {"usual": 1.0}


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_combined(name: str):
    """With a method that changes the same part of training, one that asks clients, and one that drops some."""
    others = [f"{name}+fedcorr", f"fedce+{name}", f"{name}+fednoro", f"fedism+{name}"]
    others += [f"{name}+d"] * (not METHODS[name].judges)
    for both in others:
        assert facts(both).summary
        *_, server = played(both, rounds=4)
        assert server.params.weights.isfinite().all()
        assert not server.left_out, both
