"""Every method of the catalogue on one small federation with an easy answer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from fedpca.core import Method, Samples, Server, Site, Update
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.errors import UserError
from fedpca.loop import play
from fedpca.methods.base import base, one_stage
from fedpca.methods.define import FAMILIES
from fedpca.methods.drop import DropSettings, with_drop
from fedpca.methods.registry import METHODS, facts, method_names
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.server.diagnose import remember
from fedpca.runs.check import check_experiment, method_of, plan_of
from fedpca.runs.checkpoint import load_checkpoint, save_checkpoint
from fedpca.runs.evaluate import identification
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

ROUNDS, WARMUP = 9, 4
WITHOUT_WEIGHTS = {"median", "rfa", "qffl", "trimmed-mean", "centered-clipping", "local", "central"}
WARMING = [name for name in method_names() if name.startswith("fedpca") or name.endswith("+d")]


def easy(method: dict[str, dict[str, object]] | None = None, **tables: object) -> Experiment:
    """Ten clients, two rare, three with all labels wrong; four rounds of warm-up suffice at this rate."""
    table = {
        "rounds": ROUNDS,
        "seeds": [0],
        "methods": list(method_names()),
        "data": {"clients": 10},
        "rare": {"share": 0.2, "sigma": 0.5},
        "noise": {"clients": 0.3, "labels": 1.0},
        "model": {"name": "mlp"},
        "training": {"batch": 16, "lr": 0.1},
        "method": {
            **{name: {"warmup": WARMUP, **(method or {}).get(name, {})} for name in (*WARMING, "fednoro")},
            **{name: own for name, own in (method or {}).items() if name not in (*WARMING, "fednoro")},
        },
        **tables,
    }
    return check_experiment(table, "easy")


@pytest.fixture(scope="module")
def settings() -> Experiment:
    return easy()


@pytest.fixture(scope="module")
def easy_federation(settings: Experiment) -> Federation:
    return federate(settings, load(settings.data))


def servers(method: Method, federation: Federation, workers: int = 1, rounds: int = ROUNDS) -> list[Server]:
    crew = Workers([build("mlp", federation.shape, 10, 0) for _ in range(workers)])
    clients = InProcess(method, federation.shards, crew, seed=0)
    played = list(play(method, clients, Server(params_of(crew.nets[0])), rounds))
    crew.close()
    return played


@cache
def played(name: str) -> list[Server]:
    """The rounds of a method with the settings of `easy`, played once for all tests."""
    experiment = easy()
    return servers(method_of(experiment, name), federate(experiment, load(experiment.data)))


def same(one: Server, two: Server) -> bool:
    return all(torch.equal(getattr(one.params, n), getattr(two.params, n)) for n in ("weights", "buffers", "counters"))


def test_every_listed_method_says_what_it_is():
    assert set(METHODS.own) <= set(method_names())
    for name in method_names():
        known = facts(name)
        assert known.family in FAMILIES
        assert known.summary
        assert "\n" not in known.summary
        assert known.page
    assert [facts(name).family for name in method_names()] == sorted(
        (facts(name).family for name in method_names()), key=list(FAMILIES).index
    )


@pytest.mark.parametrize("name", method_names())
def test_finite_repeatable_and_alike_for_two_workers(name: str, settings: Experiment, easy_federation: Federation):
    method = method_of(settings, name)
    first, again = played(name)[-1], servers(method, easy_federation, workers=2)[-1]
    assert first.params.weights.isfinite().all()
    assert same(first, again)
    assert first.diagnosis == again.diagnosis
    assert method == method_of(settings, name), "methods are values"


@pytest.mark.parametrize("name", method_names())
def test_it_goes_on_from_a_checkpoint_in_the_middle_of_a_stage(
    name: str, settings: Experiment, easy_federation: Federation, tmp_path
):
    method, crew = method_of(settings, name), Workers([build("mlp", easy_federation.shape, 10, 0)])
    clients, server = InProcess(method, easy_federation.shards, crew, seed=0), Server(params_of(crew.nets[0]))
    for until in (1, 6, ROUNDS):
        server = next(played for played in play(method, clients, server, ROUNDS) if played.round == until)
        save_checkpoint(tmp_path, server, clients.memory)
        server, memory, _ = load_checkpoint(tmp_path)
        clients = InProcess(method, easy_federation.shards, crew, seed=0)
        clients.memory.update(memory)
    assert same(server, played(name)[-1])
    assert server.diagnosis == played(name)[-1].diagnosis


@pytest.mark.parametrize("name", [name for name in method_names() if not WITHOUT_WEIGHTS & set(name.split("+"))])
def test_weights_are_shares(name: str, settings: Experiment, easy_federation: Federation):
    for server in played(name):
        assert server.weights is not None
        assert sum(server.weights.values()) == pytest.approx(1, abs=1e-12)
        assert min(server.weights.values()) >= 0
        assert list(server.weights) == list(easy_federation.shards)


@pytest.mark.parametrize("name", WARMING)
def test_the_warm_up_is_fedavg_bit_for_bit(name: str, settings: Experiment, easy_federation: Federation):
    plain = servers(method_of(settings, "fedavg"), easy_federation, rounds=WARMUP + 1)
    other = played(name)[: WARMUP + 1]
    assert all(same(a, b) for a, b in zip(plain[:WARMUP], other[:WARMUP], strict=True))
    if name != "fedpca":  # it is FedAvg until somebody is judged, which takes two findings in a row
        assert not same(plain[WARMUP], other[WARMUP])


@pytest.mark.parametrize("name", [name for name in WARMING if name != "fedpca-wo-robustness"])
def test_the_mislabeled_are_found_and_the_rare_kept(name: str, settings: Experiment, easy_federation: Federation):
    first = WARMUP + (
        1 if name.endswith("-auto") or name == "fedpca" else 0
    )  # `auto` judges a client after two findings in a row
    for server in played(name)[first:]:
        found = identification(server.diagnosis, easy_federation.truth)
        assert found is not None
        assert (found["f1"], found["accused_rare"], found["accused_common"]) == (1.0, 0, 0)
        if name not in ("fedpca-hs", "fedpca-hs-auto", "fedpca"):
            assert all(server.weights[client] == 0 for client in easy_federation.truth.mislabeled)


def test_fairness_lifts_the_rare(settings: Experiment, easy_federation: Federation):
    def rare_weight(name: str) -> float:
        server = played(name)[-1]
        return sum(server.weights[client] for client in easy_federation.truth.rare)

    assert rare_weight("fedpca-d") > 1.2 * rare_weight("fedpca-wo-fairness")


def observed(method: Method, federation: Federation) -> list[tuple[Site, Samples, Update]]:
    """Everything that clients trained on after the warm-up."""
    seen = []

    def watched(site: Site, samples: Samples) -> Update:
        update = method.stages[-1].recipe.train(site, samples)
        seen.append((site, samples, update))
        return update

    last = replace(method.stages[-1], recipe=replace(method.stages[-1].recipe, train=watched))
    servers(replace(method, stages=(*method.stages[:-1], last)), federation)
    return seen


def test_dropped_clients_take_no_step(settings: Experiment, easy_federation: Federation):
    seen = observed(method_of(settings, "fedpca-d"), easy_federation)
    dropped = [update for site, _, update in seen if site.order.verdict.group == "mislabeled"]
    assert len(dropped) == 3 * (ROUNDS - WARMUP)
    assert all(update.params is None and update.size == 0 for update in dropped)


def test_high_confidence_clients_train_on_confident_predictions(settings: Experiment, easy_federation: Federation):
    eager = easy(method={"fedpca-hs": {"warmup": WARMUP, "high_confidence": {"min_confidence": 0.5}}})
    seen = observed(method_of(eager, "fedpca-hs"), easy_federation)
    judged = [(site, samples, update) for site, samples, update in seen if site.order.verdict.group == "mislabeled"]
    assert any(len(samples.rows) for _, samples, _ in judged), "otherwise the test shows nothing"
    for site, samples, update in judged:
        assert update.size == len(samples.rows) <= len(site.y)
        assert not len(samples.rows) or site.order.verdict.threshold < samples.reliability <= 1
        assert update.reliability == samples.reliability
    thresholds = [site.order.verdict.threshold for site, _, _ in judged]
    assert all(0.5 <= t <= 1 for t in thresholds)


def test_with_drop_and_nobody_suspected_is_the_method_itself(settings: Experiment, easy_federation: Federation):
    nobody = DropSettings(warmup=WARMUP, identify={"mixture": {"min_margin": 1e6}})
    dropped = servers(with_drop(method_of(settings, "fedavg"), plan_of(settings), nobody), easy_federation)
    assert all(
        same(a, b) for a, b in zip(dropped, servers(method_of(settings, "fedavg"), easy_federation), strict=True)
    )


def test_with_drop_keeps_the_methods_own_report_selection_and_diagnosis(settings, easy_federation: Federation):
    def flagged(diagnosis, reports, when):
        return {c: replace(v, report={**v.report, "seen": 1.0}) for c, v in remember(diagnosis, reports, when).items()}

    def first_half(site: Site) -> Samples:
        rows = torch.arange(len(site.y) // 2)
        return Samples(rows, site.y[rows])

    def counted(site: Site):
        return {"size": float(len(site.y))}

    own = replace(base(plan_of(settings)), report=counted, diagnose=flagged, select=first_half)
    method = with_drop(one_stage(own), plan_of(settings), DropSettings(warmup=WARMUP))
    server = servers(method, easy_federation)[-1]
    for client, verdict in server.diagnosis.items():
        assert verdict.report["seen"] == 1.0
        assert verdict.report["size"] == len(easy_federation.shards[client].y)
        assert (server.weights[client] == 0) == (client in easy_federation.truth.mislabeled)
    seen = observed(method, easy_federation)
    assert all(len(samples.rows) in (0, len(site.y) // 2) for site, samples, _ in seen)


def test_without_fairness_robustness_and_sharpness_fedpca_is_fedavg(settings: Experiment, easy_federation: Federation):
    bare = easy(
        method={
            "fedpca-d": {
                "warmup": WARMUP,
                "q": 0.0,
                "weight_smoothing": 1.0,
                "sharpness": {"radius": 0.0, "alpha": 0.0},
                "identify": {"mixture": {"min_margin": 1e6}},
            }
        }
    )
    plain, other = (
        servers(method_of(settings, "fedavg"), easy_federation)[-1],
        servers(method_of(bare, "fedpca-d"), easy_federation)[-1],
    )
    assert same(plain, other)


@pytest.mark.parametrize("rare", [0.0, 0.2])
def test_auto_accuses_nobody_where_nobody_is_mislabeled(rare: float):
    clean = easy(noise={"clients": 0.0}, rare={"share": rare, "sigma": 0.5})
    federation = federate(clean, load(clean.data))
    for server in servers(method_of(clean, "fedpca-d-auto"), federation)[WARMUP:]:
        assert {verdict.group for verdict in server.diagnosis.values()} <= {"common", "rare"}


@pytest.mark.parametrize(
    ("name", "changed"), [("qfedavg", {"q": 0.0}), ("hnobs", {"q": 0.0, "screen_count": 0}), ("rfa", {"steps": 0})]
)
def test_rivals_that_reduce_to_fedavg(name: str, changed: dict[str, object], easy_federation: Federation):
    experiment = easy(method={name: changed})
    plain = servers(method_of(experiment, "fedavg"), easy_federation, rounds=3)[-1]
    other = servers(method_of(experiment, name), easy_federation, rounds=3)[-1]
    torch.testing.assert_close(other.params.weights, plain.params.weights, rtol=1e-6, atol=1e-7)


def test_screening_nobody_is_qfedavg(easy_federation: Federation):
    experiment = easy(method={"hnobs": {"screen_count": 0}})
    one, two = (servers(method_of(experiment, name), easy_federation, rounds=3)[-1] for name in ("qfedavg", "hnobs"))
    assert same(one, two)


def test_hnobs_screens_as_many_as_are_mislabeled(settings: Experiment, easy_federation: Federation):
    for server in played("hnobs"):
        assert sum(weight == 0 for weight in server.weights.values()) == 3


def test_hnobs_needs_to_know_how_many():
    silos = easy(data={"split": "column", "column": "center"})
    with pytest.raises(UserError, match=r"set method.hnobs.screen_count"):
        method_of(silos, "hnobs")


def test_fair_methods_favour_high_loss(settings: Experiment, easy_federation: Federation):
    """Which is why they feed on wrong labels."""
    server = played("qfedavg")[-1]
    mislabeled = sum(server.weights[client] for client in easy_federation.truth.mislabeled)
    assert mislabeled > 0.4  # 0.3 of the clients


def test_settings_reach_the_parts():
    changed = easy(
        method={
            "fedpca-hs": {
                "q": 2.5,
                "warmup": 7,
                "high_confidence": {"reading": "top-mean"},
                "identify": {"smoothing": 0.2, "mixture": {"covariance": "tied", "starts": 3}},
                "sharpness_in_warmup": True,
                "sharpness": {"radius": 0.1},
            }
        },
        training={"logit_adjustment": True},
    )
    method = method_of(changed, "fedpca-hs")
    text = repr(method)
    for word in (
        "q=2.5",
        "'top-mean'",
        "smoothing=0.2",
        "covariance='tied'",
        "starts=3",
        "radius=0.1",
        "LogitAdjustment",
    ):
        assert word in text
    assert method.stages[0].rounds == 7
    assert "GSAM" in repr(method.stages[0])
