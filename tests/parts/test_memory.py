"""Vectors that a rule of the server keeps between rounds, and those that it shows to clients.

Three toys stand for what others will add: server momentum, which keeps a vector, SCAFFOLD's control variate, which
clients must see, and the states of all clients, of which each client sees one. They work alone and inside A+B, and a
run that is interrupted goes on as if it never was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from fedpca.core import Method, Outcome, Params, Recipe, Server, Shard, Site, Stage, Update
from fedpca.loop import play
from fedpca.methods.combine import plus
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client.select import everything
from fedpca.parts.client.step import batch_gradient
from fedpca.parts.client.train import Descent, LocalTraining
from fedpca.parts.server.aggregate import WeightedMean
from fedpca.parts.server.cohort import everyone
from fedpca.parts.server.diagnose import remember
from fedpca.parts.server.weigh import by_size
from fedpca.runs.checkpoint import load_checkpoint, save_checkpoint
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

LR, STEPS = 0.1, 1  # of one batch a round
MEAN = WeightedMean(by_size, smoothing=1.0)
PLAIN = Recipe(
    None, remember, everything, LocalTraining(Descent("sgd", LR, 0.0, 0.0), batch=64, epochs=1), MEAN, everyone
)


@dataclass
class MomentumFold:
    """The mean's step, and what is left of the steps before."""

    server: Server
    mean: object

    def add(self, client: str, update: Update) -> None:
        self.mean.add(client, update)

    def finish(self) -> Outcome:
        outcome, start = self.mean.finish(), self.server.params
        step = outcome.params.weights - start.weights
        moment = 0.5 * self.server.memory.get("moment", torch.zeros_like(step)) + step
        return replace(
            outcome, params=replace(outcome.params, weights=start.weights + moment), memory={"moment": moment}
        )


def server_momentum(server: Server) -> MomentumFold:
    return MomentumFold(server, MEAN(server))


@dataclass
class ControlFold:
    """SCAFFOLD's rule: the control variate moves by the mean of (x - y_i) / (K lr) - c, from the updates alone."""

    server: Server
    mean: object
    moves: list[torch.Tensor]

    def add(self, client: str, update: Update) -> None:
        self.mean.add(client, update)
        self.moves.append((self.server.params.weights - update.params.weights) / (STEPS * LR) - self.control)

    @property
    def control(self) -> torch.Tensor:
        return self.server.shown.get("control", torch.zeros_like(self.server.params.weights))

    def finish(self) -> Outcome:
        control = self.control + torch.stack(self.moves).mean(dim=0)
        return replace(self.mean.finish(), shown={"control": control})


def control_rule(server: Server) -> ControlFold:
    return ControlFold(server, MEAN(server), [])


def controlled_step(site: Site, backward, optimizer) -> None:
    """Down g - c_i + c, c_i from the client's memory and c from the server."""
    gradient = batch_gradient(site.net, backward)
    if "control" in site.order.shown:
        gradient += site.order.shown["control"] - site.memory["control"]
    optimizer.step()


def keep_control(site: Site, params: Params) -> dict[str, float]:
    """c_i: the client's own gradient, as it was before its correction."""
    own, seen = site.memory.get("control", 0.0), site.order.shown.get("control", 0.0)
    start = site.memory.pop("start")
    site.memory["control"] = own - seen + (start - params.weights) / (STEPS * LR)
    return {}


def remember_start(site: Site):
    site.memory["start"] = site.net.weights.detach().clone()
    return everything(site)


@dataclass
class NeighbourFold:
    """Keeps every client's state, and shows each client that of the next one."""

    mean: object
    states: dict[str, torch.Tensor]

    def add(self, client: str, update: Update) -> None:
        self.mean.add(client, update)
        self.states[client] = update.params.weights

    def finish(self) -> Outcome:
        clients = list(self.states)
        shown_to = {client: {"next": other} for client, other in zip(clients, clients[1:] + clients[:1], strict=True)}
        return replace(self.mean.finish(), memory=self.states, shown_to=shown_to)


def neighbour_rule(server: Server) -> NeighbourFold:
    return NeighbourFold(MEAN(server), {})


def keep_next(site: Site, params: Params) -> dict[str, float]:
    """What the client alone was shown."""
    site.memory["seen"] = site.order.shown.get("next", torch.zeros(1))
    return {}


FEDAVG = Method("fedavg", (Stage(PLAIN),))
NEXT = Method("next", (Stage(replace(PLAIN, train=replace(PLAIN.train, after=keep_next), aggregate=neighbour_rule)),))
MOMENTUM = Method("momentum", (Stage(replace(PLAIN, aggregate=server_momentum)),))
TRAIN = replace(PLAIN.train, step=controlled_step, after=keep_control)
SCAFFOLD = Method("scaffold", (Stage(replace(PLAIN, select=remember_start, train=TRAIN, aggregate=control_rule)),))
METHODS = {
    "momentum": MOMENTUM,
    "scaffold": SCAFFOLD,
    "next": NEXT,
    "next+momentum": plus(NEXT, MOMENTUM, PLAIN, share=0.5),
    "momentum+fedavg": plus(MOMENTUM, FEDAVG, PLAIN, share=0.5),
    "fedavg+scaffold": plus(FEDAVG, SCAFFOLD, PLAIN, share=0.5),
    "momentum+scaffold": plus(MOMENTUM, SCAFFOLD, PLAIN, share=0.5),
}


def shards() -> dict[str, Shard]:
    rng = torch.Generator().manual_seed(0)
    return {
        str(i): Shard(torch.rand(8, 1, 4, 4, generator=rng), torch.randint(0, 3, (8,), generator=rng)) for i in range(3)
    }


def clients_of(method: Method) -> InProcess:
    return InProcess(method, shards(), Workers([build("mlp", (1, 4, 4), 3, 0)]), seed=0)


def played(method: Method, rounds: int) -> list[Server]:
    clients = clients_of(method)
    return list(play(method, clients, Server(params_of(clients.workers.nets[0])), rounds))


def test_server_momentum_keeps_its_vector_and_nobody_sees_it():
    start = params_of(build("mlp", (1, 4, 4), 3, 0)).weights
    one, two = played(MOMENTUM, 2)
    assert torch.allclose(one.memory["moment"], one.params.weights - start, atol=1e-7)
    assert torch.allclose(two.params.weights, one.params.weights + two.memory["moment"])
    assert (one.shown, two.shown) == ({}, {})


def test_the_control_variate_is_the_mean_of_the_clients_own():
    clients = clients_of(SCAFFOLD)
    *_, server = play(SCAFFOLD, clients, Server(params_of(clients.workers.nets[0])), 3)
    own = torch.stack([memory["control"] for memory in clients.memory.values()])
    torch.testing.assert_close(server.shown["control"], own.mean(dim=0), atol=1e-5, rtol=1e-4)
    assert server.memory == {}


def test_inside_a_combination_each_side_keeps_and_shows_its_own():
    *_, server = played(METHODS["momentum+scaffold"], 2)
    assert list(server.memory) == ["momentum/moment"]
    assert list(server.shown) == ["scaffold/control"]
    clients = clients_of(METHODS["fedavg+scaffold"])
    *_, server = play(clients.method, clients, Server(params_of(clients.workers.nets[0])), 3)
    own = torch.stack([memory["scaffold/control"] for memory in clients.memory.values()])
    assert server.shown["scaffold/control"].abs().max() > 1e-3
    torch.testing.assert_close(server.shown["scaffold/control"], own.mean(dim=0), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("name", "prefix"), [("next", ""), ("next+momentum", "next/")])
def test_a_client_sees_what_is_shown_to_it_alone(name: str, prefix: str):
    clients = clients_of(METHODS[name])
    one, _ = play(METHODS[name], clients, Server(params_of(clients.workers.nets[0])), 2)
    assert one.shown == {}
    seen = {client: memory[f"{prefix}seen"] for client, memory in clients.memory.items()}
    for client, other in (("0", "1"), ("1", "2"), ("2", "0")):
        assert torch.equal(seen[client], one.memory[f"{prefix}{other}"]), "of the round before"
    assert not torch.equal(seen["0"], seen["1"])


def test_a_vector_of_the_global_state_itself_is_not_sent_twice():
    def showing(server: Server):
        fold = MEAN(server)
        finish = fold.finish

        def finished() -> Outcome:
            outcome = finish()
            return replace(outcome, shown={"weights": outcome.params.weights, "copy": outcome.params.weights.clone()})

        fold.finish = finished
        return fold

    (server,) = played(Method("showing", (Stage(replace(PLAIN, aggregate=showing)),)), 1)
    assert list(server.shown) == ["copy"]
    both = plus(Method("showing", (Stage(replace(PLAIN, aggregate=showing)),)), MOMENTUM, PLAIN, share=0.5)
    (server,) = played(both, 1)
    assert list(server.shown) == ["showing/weights", "showing/copy"], "there the global state is another"


def test_what_a_rule_does_not_keep_again_is_forgotten():
    staged = Method("staged", (Stage(MOMENTUM.stages[0].recipe, 1), Stage(PLAIN)))
    one, two = played(staged, 2)
    assert (list(one.memory), list(two.memory)) == (["moment"], [])


@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_run_goes_on_to_the_bit(name: str, tmp_path):
    method, before = METHODS[name], clients_of(METHODS[name])
    whole = played(method, 4)
    *_, server = play(method, before, Server(params_of(before.workers.nets[0])), 2)
    save_checkpoint(tmp_path, server, before.memory)
    saved, memory, _ = load_checkpoint(tmp_path)
    after = clients_of(method)
    for client, own in memory.items():
        after.memory[client].update(own)
    *_, server = play(method, after, saved, 4)
    assert torch.equal(server.params.weights, whole[-1].params.weights)
    assert server.shown_to == whole[-1].shown_to
    assert all(torch.equal(server.shown[key], whole[-1].shown[key]) for key in whole[-1].shown)
    assert all(torch.equal(server.memory[key], whole[-1].memory[key]) for key in whole[-1].memory)
