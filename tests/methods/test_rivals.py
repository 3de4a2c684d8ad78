"""The methods that FedPCA is compared with: what each reduces to, withstands and keeps to, alone and combined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpca.core import Failure, Method, Net, Order, Params, Report, Server, Stage, Update, Verdict, When
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.errors import UserError
from fedpca.loop import play
from fedpca.methods.base import base
from fedpca.methods.combine import plus
from fedpca.methods.compose import compose
from fedpca.methods.drop import DropSettings, with_drop
from fedpca.models.build import build
from fedpca.models.flat import flatten, layout_of, params_of
from fedpca.models.flat import load as into
from fedpca.models.scaling import Scaling
from fedpca.parts.client.distance import class_losses
from fedpca.parts.client.loss import Proximal
from fedpca.parts.client.relabel import CorrectConfident, CorrectWorst, unless_resting
from fedpca.parts.client.select import everything
from fedpca.parts.client.step import radius_in
from fedpca.runs.check import check_experiment, method_of, plan_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from tests.methods.test_methods import ROUNDS, WARMUP, easy, same, servers

FIRST, SECOND = 3, 3  # rounds of FedCorr's stages here
VECTORS = ("weights", "buffers", "counters")


@cache
def world() -> tuple[Experiment, Federation]:
    experiment = easy(method={"fedcorr": {"stages": [FIRST, SECOND]}})
    return experiment, federate(experiment, load(experiment.data))


@cache
def tiny() -> tuple[Experiment, Federation]:
    """24 digits for each of the ten clients."""
    experiment = easy(data={"clients": 10, "train_images": 240, "test_images": 50})
    return experiment, federate(experiment, load(experiment.data))


def intact(round: int, client: str, update: Update) -> Update | Failure:
    return update


@dataclass
class Watched:
    """The clients, with what they said, and with what becomes of it on its way."""

    clients: InProcess
    change: Callable[[int, str, Update], Update | Failure] = intact
    told: dict[tuple[int, str], Report] = field(default_factory=dict)
    sent: dict[tuple[int, str], Update] = field(default_factory=dict)

    @property
    def ids(self):
        return self.clients.ids

    @property
    def sizes(self):
        return self.clients.sizes

    def report(self, params: Params, orders: Mapping[str, Order]) -> Iterator[tuple[str, Report | Failure]]:
        for client, report in self.clients.report(params, orders):
            self.told[orders[client].round, client] = report
            yield client, report

    def train(self, params: Params, orders: Mapping[str, Order]) -> Iterator[tuple[str, Update | Failure]]:
        for client, update in self.clients.train(params, orders):
            self.sent[orders[client].round, client] = update
            yield client, self.change(orders[client].round, client, update)


def watched(method: Method, federation: Federation, rounds: int = ROUNDS, change=intact, net: Net | None = None):
    """Each round's server, and the clients."""
    crew = Workers([net or build("mlp", federation.shape, 10, 0)])
    clients = Watched(InProcess(method, federation.shards, crew, seed=0), change)
    for server in play(method, clients, Server(params_of(crew.nets[0])), rounds):
        yield server, clients


# What each reduces to


def made(name: str, experiment: Experiment, **settings: object) -> Method:
    """A method under these settings of its own."""
    return compose(name, plan_of(experiment), {name: settings})


def close(one: Server, two: Server) -> None:
    torch.testing.assert_close(one.params.weights, two.params.weights, rtol=1e-5, atol=1e-6)


@cache
def plain(rounds: int = 7) -> list[Server]:
    experiment, federation = tiny()
    return servers(method_of(experiment, "fedavg"), federation, rounds=rounds)


UNSHARP = {"radius": 0.0, "alpha": 0.0}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedism", {"q": 0, "sharpness": UNSHARP}),
        ("fedga", {"step": 0}),
        ("qffl", {"q": 0}),
        ("rfa", {"steps": 0}),
        ("fedcorr", {"mixup": 0, "proximal": 0, "confidence": 1, "max_noise": 1}),
        ("sce", {"alpha": 1, "beta": 0}),
        ("fedelc", {"warmup": 7, "logit_adjustment": False}),
        ("feddiv", {"warmup": 2, "max_noise": 1}),
        ("fedrn", {"warmup": 2, "threshold": 1}),
        ("na-fedavg", {"threshold": 1.1}),
        ("rhfl", {"eta": 0}),
    ],
)
def test_without_their_own_they_are_fedavg(name: str, settings: dict[str, object]):
    """All clients have as many samples, so that even weights are FedAvg's."""
    experiment, federation = tiny()
    for one, two in zip(servers(made(name, experiment, **settings), federation, rounds=7), plain(), strict=True):
        close(one, two)


def test_fedism_with_q_0_is_even_whatever_the_sharpness():
    experiment, federation = world()  # where sizes differ
    for server in servers(made("fedism", experiment, q=0), federation, rounds=3):
        assert list(server.weights.values()) == pytest.approx([0.1] * 10, abs=1e-12)


def test_fedism_plus_without_growth_is_fedism():
    experiment, federation = tiny()
    steady = made("fedism+", experiment, sharpness={"growth": 0.0})
    usual = made("fedism", experiment)
    assert same(servers(steady, federation, rounds=3)[-1], servers(usual, federation, rounds=3)[-1])


def test_the_specifications_growing_radius():
    assert [radius_in(When(t + 1, 300), 0.05, 0.5) for t in (0, 74, 299)] == pytest.approx(
        [0.002887, 0.025, 0.05], abs=1e-6
    )
    assert radius_in(When(1, 300), 0.05, 0.0) == 0.05


@pytest.mark.parametrize("name", ["fednoro", "fedelc"])
def test_who_finds_the_noisy_warms_up_as_fedavg_and_stays_it_where_clients_are_alike(name: str):
    experiment, federation = tiny()
    method = made(name, experiment, warmup=WARMUP, logit_adjustment=False)
    for one, two in zip(servers(method, federation, rounds=WARMUP), plain()[:WARMUP], strict=True):
        assert same(one, two)
    twins = replace(federation, shards=dict.fromkeys(federation.shards, federation.shards["0"]))
    alike, averaged = (servers(which, twins, rounds=7)[-1] for which in (method, method_of(experiment, "fedavg")))
    assert alike.weights == pytest.approx(averaged.weights, abs=1e-12)
    close(alike, averaged)


def test_fedpca_without_fairness_and_suspects_weighs_by_size():
    experiment, federation = world()
    method = made("fedpca-wo-fairness", experiment, warmup=2, identify={"mixture": {"min_margin": 1e6}})
    sizes = {client: len(shard.y) for client, shard in federation.shards.items()}
    for server in servers(method, federation, rounds=5):
        expected = {client: size / sum(sizes.values()) for client, size in sizes.items()}
        assert server.weights == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("share", "alone"), [(1.0, 0), (0.0, 1)])
def test_a_mixture_with_all_of_one_is_that_one(share: float, alone: int):
    experiment, federation = tiny()
    both = [method_of(experiment, name) for name in ("qfedavg", "median")]
    mixed = servers(plus(*both, base(plan_of(experiment)), share), federation, rounds=3)[-1]
    assert torch.equal(mixed.params.weights, servers(both[alone], federation, rounds=3)[-1].params.weights)


# What they withstand


def garbage(*clients: str):
    """Replaces what these clients send by a million times noise, the same for all of them."""

    def change(round: int, client: str, update: Update) -> Update:
        noise = 1e6 * torch.randn(len(update.params.weights), generator=torch.Generator().manual_seed(round))
        return replace(update, params=replace(update.params, weights=noise)) if client in clients else update

    return change


@pytest.mark.parametrize(
    ("name", "settings"),
    [("median", {}), ("rfa", {"steps": 300, "tolerance": 0})],
    ids=["median", "rfa"],
)
def test_robust_rules_withstand_one_client_and_no_majority(name: str, settings: dict[str, object]):
    experiment, federation = tiny()
    method = made(name, experiment, **settings)

    def result(*spoiled: str) -> tuple[torch.Tensor, float]:
        """The model after a round, and how far apart the honest ones are."""
        ((server, clients),) = watched(method, federation, 1, garbage(*spoiled))
        honest = torch.stack([u.params.weights for (_, c), u in clients.sent.items() if c not in spoiled])
        return server.params.weights, torch.pdist(honest).max().item()

    clean, _ = result()
    one, spread = result("4")
    assert (one - clean).norm() < spread
    most, _ = result(*"123456")
    assert (most - clean).norm() > 1e6


def test_fedavg_does_not_withstand_one():
    experiment, federation = tiny()
    ((server, _),) = watched(method_of(experiment, "fedavg"), federation, 1, garbage("4"))
    assert (server.params.weights - plain()[0].params.weights).norm() > 1e6


def batch_normed(shape: tuple[int, int, int]) -> tuple[Net, list[float]]:
    """A model with batch norm, and the least variance that it held in each pass that was not training."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(16)
    module = nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], 16), norm, nn.ReLU(), nn.Linear(16, 10)).eval()
    least: list[float] = []
    module.register_forward_hook(lambda *_: None if module.training else least.append(norm.running_var.min().item()))
    return flatten(module, module[-1], scale=Scaling.for_channels(shape[0])), least


@pytest.mark.parametrize(
    "name", ["fedavg", "fedce", "median", "rfa", "fednoro", "qfedavg+median", "fedce+rfa", "fedga+fedcorr",
             "fedism+fednoro", "fedce+rfa+d", "sce", "fedlsr", "fedelc", "feddiv", "fedrn", "na-fedavg", "rhfl",
             "fedprox", "fedavgm", "fedadam", "fedyogi", "scaffold", "trimmed-mean", "krum", "multi-krum",
             "centered-clipping", "norm-clipping", "afl", "term"],
)  # fmt: skip
def test_batch_norms_variances_stay_positive_and_its_counters_whole(name: str):
    """In what the server makes, and in whatever clients look through, FedCE's models without one client included."""
    experiment, federation = tiny()
    net, least = batch_normed(federation.shape)
    for server, _ in watched(method_of(experiment, name), federation, WARMUP + 2, net=net):
        named = layout_of(net.module).named(server.params)
        assert named["2.running_var"].min() > 0
        assert named["2.num_batches_tracked"].dtype == torch.int64
        assert all(tensor.isfinite().all() for tensor in named.values() if tensor.is_floating_point())
    assert min(least, default=1.0) > 0


@pytest.mark.parametrize("name", ["fedce", "fedce+rfa"])
def test_fedces_clients_look_through_the_mean_of_the_others(name: str):
    """By FedCE's own shares, also where the global model is mixed with another's."""
    experiment, federation = tiny()
    net, _ = batch_normed(federation.shape)
    seen: list[Params] = []
    net.module.register_forward_pre_hook(lambda *_: None if net.module.training else seen.append(params_of(net)))
    server, clients = next(played := watched(method_of(experiment, name), federation, 2, net=net))
    assert not seen, "nobody has anything to look through in round 1"
    next(played)
    verdicts = {c: v.sides["fedce"] if name != "fedce" else v for c, v in server.diagnosis.items()}
    for client, minus in zip(clients.ids, seen, strict=True):
        others = {c: v.weight / (1 - verdicts[client].weight) for c, v in verdicts.items() if c != client}
        for vector in ("weights", "buffers"):
            mean = sum(w * getattr(clients.sent[1, c].params, vector).double() for c, w in others.items())
            torch.testing.assert_close(getattr(minus, vector).double(), mean, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["fedga", "fedga+fedcorr"])
def test_fedgas_gap_is_from_the_own_model_to_the_new_global_one(name: str):
    experiment, federation = tiny()
    (server, clients), _ = watched(method_of(experiment, name), federation, 2)
    net, key = build("mlp", federation.shape, 10, 0), "gap" if name == "fedga" else "fedga/gap"
    for client, shard in federation.shards.items():
        losses = []
        for params in (server.params, clients.sent[1, client].params):
            into(net, params)
            with torch.no_grad():
                losses.append(cross_entropy(net(shard.x[torch.arange(len(shard.y))]), shard.y).item())
        assert clients.told[2, client][key] == pytest.approx(losses[0] - losses[1], abs=1e-5)


def test_a_client_whose_update_was_lost_does_not_take_it_out_of_a_mean_that_never_held_it():
    """FedCE's model without one client needs the share that this client had in the model at hand: none."""
    experiment, federation = tiny()

    def lost(round: int, client: str, update: Update) -> Update | Failure:
        return Failure("lost") if (round, client) == (2, "4") else update

    played = list(watched(method_of(experiment, "fedce"), federation, 3, lost))
    clients = played[-1][1]
    assert played[1][0].left_out == {"4": "lost"}
    assert clients.told[3, "5"], "the others report as ever"
    assert clients.told[3, "4"] == {}


def test_hnobs_screens_a_share_of_those_who_take_part():
    experiment, federation = tiny()
    some = method_of(experiment.model_copy(update={"participation": 0.4}), "hnobs")
    for server in servers(some, federation, rounds=2):
        assert sum(weight > 0 for weight in server.weights.values()) == 3  # of 4, one of whom is screened out
    with pytest.raises(UserError, match=r"screen out 10 of the 10 clients of a round"):
        method_of(easy(method={"hnobs": {"screen_count": 10}}), "hnobs")


@pytest.mark.parametrize("name", ["fedga+fedcorr", "fedcorr+fedga"])
def test_a_gap_is_measured_on_the_same_labels_at_both_ends(name: str):
    """In whichever order they are named: labels corrected in an exchange count from the next one on."""
    experiment, federation = tiny()
    seen = [clients.told for _, clients in watched(method_of(experiment, name), federation, 3)][-1]
    gaps = {key: report["fedga/gap"] for key, report in seen.items() if "fedga/gap" in report}
    other = "fedcorr+fedga" if name == "fedga+fedcorr" else "fedga+fedcorr"
    again = [clients.told for _, clients in watched(method_of(experiment, other), federation, 2)][-1]
    assert {key: gap for key, gap in gaps.items() if key[0] == 2} == {
        key: report["fedga/gap"] for key, report in again.items() if "fedga/gap" in report
    }


# Stages


def fedcorrs(rounds: int, **settings: object) -> Method:
    table = {"rounds": rounds, "methods": ["fedcorr"], "method": {"fedcorr": settings}}
    return method_of(check_experiment(table, "test"), "fedcorr")


@pytest.mark.parametrize(
    ("rounds", "settings", "first", "second"),
    [
        (500, {}, 10, 240),
        (300, {}, 10, 140),
        (500, {"stages": [10, 240]}, 10, 240),
        (100, {"stages": [3, 47]}, 3, 47),
        (100, {"stages": [10, 140]}, 10, 140),  # the published lengths where the third stage is never reached
        (20, {"stages": [5, 1]}, 5, 1),
    ],
)
def test_fedcorrs_stages_begin_in_the_published_rounds(rounds: int, settings, first: int, second: int):
    method = fedcorrs(rounds, **settings)
    for round in range(1, rounds + 1):
        recipe = method.recipe(round)
        stage = 1 if round <= first else 2 if round <= first + second else 3
        asks = {1: CorrectWorst, 2: CorrectWorst if round == first + 1 else type(None)}
        asks[3] = CorrectConfident if round == first + second + 1 else type(None)
        assert isinstance(recipe.report, asks[stage]), f"round {round}"
        assert recipe.select == (unless_resting if stage == 2 else everything), f"round {round}"
        assert isinstance(recipe.train.loss, Proximal) == (stage == 1), f"round {round}: the pull is of the first stage"


def test_fedcorr_pulls_from_the_second_batch_on():
    """Training in a single batch is as without the pull, however noisy the client is thought to be."""
    experiment, federation = tiny()
    for batch in (24, 12):
        weights = []
        for proximal in (0.0, 50.0):
            method = made("fedcorr", experiment, proximal=proximal, mixup=0)
            train = replace(method.recipe(1).train, batch=batch)
            crew = Workers([build("mlp", federation.shape, 10, 0)])
            alone = Method("t", (Stage(replace(method.recipe(1), report=None, train=train)),))
            clients = InProcess(alone, {"0": federation.shards["0"]}, crew, seed=0)
            ((_, update),) = clients.train(params_of(crew.nets[0]), {"0": Order(1, 9, Verdict(suspicion=0.9))})
            weights.append(update.params.weights)
        assert torch.equal(*weights) == (batch == 24)


def labels_in_use(clients: Watched) -> dict[str, torch.Tensor]:
    shards, memory = clients.clients.shards, clients.clients.memory
    return {client: memory[client].get("labels", shard.y).clone() for client, shard in shards.items()}


@pytest.mark.parametrize("name", ["fedcorr", "fedga+fedcorr"])
def test_fedcorr_corrects_labels_of_the_noisy_alone_and_when_it_should(name: str):
    experiment, federation = world()
    given = {client: shard.y.clone() for client, shard in federation.shards.items()}
    before, accused, changed = given, set(), {}
    for server, clients in watched(method_of(experiment, name), federation):
        now = labels_in_use(clients)
        changed[server.round] = {client for client in now if not torch.equal(now[client], before[client])}
        assert changed[server.round] <= accused, f"round {server.round}"
        before, accused = now, {c for c, verdict in server.diagnosis.items() if verdict.group == "mislabeled"}
    assert all(torch.equal(shard.y, given[client]) for client, shard in federation.shards.items())
    assert {round for round, some in changed.items() if some} <= {2, 3, FIRST + 1, FIRST + SECOND + 1}
    assert set(federation.truth.mislabeled) <= changed[FIRST + SECOND + 1], "otherwise the test shows nothing"
    for client in federation.truth.mislabeled:
        assert (before[client] == federation.truth.labels[client]).double().mean() > 0.5  # from 0


def test_fedcorr_lets_the_noisy_rest_in_the_second_stage_alone():
    experiment, federation = world()
    for server, clients in watched(method_of(experiment, "fedcorr"), federation):
        resting = {c for c, v in server.diagnosis.items() if (v.suspicion or 0) > 0.1}
        trained = {c for c in clients.ids if clients.sent[server.round, c].params is not None}
        second = FIRST < server.round <= FIRST + SECOND
        assert trained == set(clients.ids) - (resting if second else set()), f"round {server.round}"
        assert {c for c, weight in server.weights.items() if weight > 0} == trained
        assert not second or resting, "otherwise the test shows nothing"


def test_fednoro_names_the_mislabeled_once():
    experiment, federation = world()
    method, named = method_of(experiment, "fednoro"), []
    for server in servers(method, federation):
        accused = {c for c, verdict in server.diagnosis.items() if verdict.group == "mislabeled"}
        named.append((accused, {c: verdict.report.get("class_loss") for c, verdict in server.diagnosis.items()}))
        if server.round > WARMUP:
            clean = [server.weights[c] for c in server.weights if c not in accused]
            assert all(server.weights[c] < min(clean) for c in accused)
            assert all(server.weights[c] > min(clean) / 2.8 for c in accused), "at least 1 / e of its size"
    assert [bool(accused) for accused, _ in named] == [False] * WARMUP + [True] * (ROUNDS - WARMUP)
    assert named[WARMUP][0] == set(federation.truth.mislabeled)
    assert all(one == named[WARMUP] for one in named[WARMUP:]), "neither asked nor judged again"
    asked = [round for round in range(1, ROUNDS + 1) if method.recipe(round).report is class_losses]
    assert asked == [WARMUP + 1]


# Combinations


@pytest.mark.parametrize("name", ["qfedavg", "fedce", "fedga", "fedism", "qfedavg+median", "fedce+rfa"])
def test_a_method_that_drops_nobody_is_the_method_after_a_warm_up(name: str):
    experiment, federation = tiny()
    alone = method_of(experiment, name)
    dropping = with_drop(
        alone, plan_of(experiment), DropSettings(warmup=WARMUP, identify={"mixture": {"min_margin": 1e6}})
    )
    warmed = Method(name, (Stage(base(plan_of(experiment)), WARMUP), *alone.stages))
    for one, two in zip(servers(dropping, federation), servers(warmed, federation), strict=True):
        assert not any(verdict.group == "mislabeled" for verdict in one.diagnosis.values())
        assert same(one, two), f"round {one.round}"
        assert one.weights == two.weights


def test_fedga_with_fedcorr_gives_the_resting_nothing_and_keeps_their_shares():
    experiment, federation = world()
    kept: dict[str, float] = {}
    for server, clients in watched(method_of(experiment, "fedga+fedcorr"), federation):
        sides = {c: verdict.sides for c, verdict in server.diagnosis.items()}
        if not FIRST < server.round <= FIRST + SECOND:
            assert min(server.weights.values()) > 0
            continue
        resting = {c for c in clients.ids if clients.sent[server.round, c].params is None}
        assert resting, "otherwise the test shows nothing"
        assert resting == {c for c in sides if sides[c]["fedcorr"].suspicion > 0.1}
        for client in resting:
            weights = (server.weights[client], *(own.weight for own in sides[client].values()))
            assert weights == (0, 0, 0)
            share = sides[client]["fedga"].notes["share"]
            assert share == kept.setdefault(client, share), "as at the beginning of the stage"
        training = sum(sides[c]["fedga"].weight for c in sides if c not in resting)
        assert training == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "name", ["fedce", "fedga", "fedism", "fedcorr", "fednoro", "fedce+rfa", "fedga+fedcorr", "fedism+fednoro"]
)
def test_where_half_the_clients_take_part_each_round_weights_are_still_shares(name: str):
    experiment, federation = tiny()
    half = experiment.model_copy(update={"participation": 0.5})
    for server in servers(method_of(half, name), federation):
        assert server.params.weights.isfinite().all()
        assert not server.left_out
        if server.weights is not None:
            assert sum(server.weights.values()) == pytest.approx(1, abs=1e-12)
            assert len(server.weights) <= 5
