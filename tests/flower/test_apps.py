"""The apps over a grid within this process: same bits as the engine, faults by name, nothing hangs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import Result
from safetensors.torch import load_file
from torch import nn

from fedpca import params_of
from fedpca.core import Estimate, Method, Server, Shard, Verdict
from fedpca.data.federation import Federation
from fedpca.errors import RunError, SettingsError
from fedpca.flower.apps import client_app, fedpca_client
from fedpca.flower.config import read_run_config
from fedpca.flower.engine import FlowerEngine
from fedpca.flower.strategy import FedPCA, layout_from, metrics_of
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import layout_of
from fedpca.results.read.runs import find_runs
from fedpca.results.tables.rows import tabulate
from fedpca.runs.check import check_experiment, method_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from fedpca.sites import clients, roster, run
from fedpca.sites.deployment import task_of
from fedpca.sites.one_exchange import in_one_exchange
from fedpca.sites.settings import BOUNDS, Deployment
from tests.flower.grid import Loopback

NAMES = ("aachen", "bonn", "celle", "dessau", "essen", "fulda")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (roster, clients):
        monkeypatch.setattr(module, "POLL", 0.01)
    monkeypatch.setattr(roster, "REFRESH", 0.0)
    monkeypatch.setenv("FEDPCA_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def shards(federation: Federation) -> dict[str, Shard]:
    return dict(zip(NAMES, federation.shards.values(), strict=True))


def held_out(number: int, shard: Shard, test: Shard) -> torch.Tensor:
    """A sixth of the test images, of classes that the site can know."""
    own = torch.arange(number % 6, len(test.y), 6)
    return own[test.y[own] <= shard.y.max()]


@pytest.fixture
def grid(shards: dict[str, Shard], federation: Federation, tmp_path: Path) -> Loopback:
    """Six sites, each with a folder of its own data."""
    nodes = {}
    for number, (name, shard) in enumerate(shards.items(), 100):
        folder, test = tmp_path / "data" / name, federation.tests["common"]
        folder.mkdir(parents=True)
        own = held_out(number, shard, test)
        x = shard.x[torch.arange(len(shard.y))].numpy()
        np.savez(folder / "images.npz", x_train=x, y_train=shard.y, x_test=test.x[own], y_test=test.y[own])
        nodes[number] = client_app, {"site": name, "data": str(folder), "store": str(tmp_path / "store" / name)}
    return Loopback(nodes)


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., tuple[Experiment, Deployment]]:
    def configured(method: str, **changes: object) -> tuple[Experiment, Deployment]:
        config = {"name": "six", "methods": method, "seeds": 0, "rounds": 4, "model.name": "mlp", "training.batch": 16}
        deploy = {"deploy.sites": 6, "deploy.out": str(tmp_path / "runs"), "deploy.wait": 5.0, "deploy.deadline": 0.5}
        return read_run_config({**config, **deploy, **changes})

    return configured


def serve(grid: Loopback, experiment: Experiment, deployment: Deployment, log: Callable[[str], None]) -> Path:
    return run.serve(FlowerEngine(grid), experiment, deployment, log)


def in_process(experiment: Experiment, method: Method, shards: dict[str, Shard], rounds: int | None = None) -> Server:
    workers = Workers([build(experiment.model.name, (1, 8, 8), 10, experiment.seeds[0])])
    clients = InProcess(method, shards, workers, experiment.seeds[0], batched=False)
    *_, server = play(method, clients, Server(params_of(workers.nets[0])), rounds or experiment.rounds)
    return server


def final(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "final.safetensors")


def expected(server: Server) -> dict[str, torch.Tensor]:
    return layout_of(build("mlp", (1, 8, 8), 10, 0).module).named(server.params)


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


WARM = {"fedpca-hs": 2, "fedpca-d": 1, "fedpca-hs-auto": 1, "fednoro": 1}


@pytest.mark.parametrize(
    ("method", "exchange"),
    [
        *((method, "two") for method in ("fedavg", "fedpca-hs", "fedpca-d", "fedce+rfa", "fedcorr", "fednoro")),
        *((method, "two") for method in ("fedelc", "feddiv", "fedrn+na-fedavg")),
        *((method, "one") for method in ("fedpca-d", "fedce+rfa", "fedcorr", "na-fedavg")),
    ],
)
def test_the_apps_give_the_engines_bits(method: str, exchange: str, grid, shards, configured):
    warm = {f"method.{method}.warmup": WARM[method]} if method in WARM else {}
    experiment, deployment = configured(method, **warm, **{"deploy.exchange": exchange})
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    here = in_process(experiment, task_of(experiment).build(exchange), shards)
    assert equal(final(folder), expected(here))
    assert all(not line["left_out"] for line in lines(folder))
    if exchange == "one":
        assert not [kind for _, kind in grid.sent if kind == "query.report"]


def test_a_dropped_site_gets_no_training_message(grid: Loopback, configured):
    experiment, deployment = configured("fedpca-d", **{"method.fedpca-d.warmup": 1})
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    trained = [node for node, kind in grid.sent if kind == "train"]
    dropped = sum(line["clients"]["group"].count("mislabeled") for line in lines(folder) if line["clients"]["group"])
    assert dropped > 0
    assert len(trained) == 6 * 4 - dropped


def test_the_record_is_a_run_folder_like_any_other(grid: Loopback, configured):
    experiment, deployment = configured("fedpca-hs", **{"method.fedpca-hs.warmup": 2})
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    (table,) = tabulate(find_runs([deployment.out]))
    assert table.groups == NAMES
    assert table.mislabeled is None
    *_, last = lines(folder)
    worst = 100 * min(np.mean([line["groups"][name]["acc"] for line in lines(folder)]) for name in NAMES)
    assert table.rows[0].scores["acc"].worst.mean == pytest.approx(worst)
    assert last["clients"]["id"] == list(NAMES)
    kept = (folder / "checkpoint/state.safetensors").stat().st_size
    assert kept < (folder / "final.safetensors").stat().st_size, "the weights are not there twice"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["acc"]["worst"] == pytest.approx(worst / 100)


def test_each_line_has_the_test_of_its_own_model(grid: Loopback, configured, federation: Federation, shards):
    experiment, deployment = configured("fedavg", rounds=2)
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    net = build("mlp", (1, 8, 8), 10, 0).module
    net.load_state_dict(final(folder))
    test = federation.tests["common"]
    own = held_out(100, shards["aachen"], test)
    scaled = (test.x[own].float() / 255 - 0.5) / 0.25
    share = (net(scaled).argmax(1) == test.y[own]).double().mean().item()
    assert lines(folder)[1]["groups"]["aachen"]["acc"] == pytest.approx(share)


# Faults


def with_fault(grid: Loopback, site: str, kind: str, round: int, spoil: Callable[[Message], Message]) -> None:
    """Has a site's answer to one kind of message of one round go wrong."""
    (number,) = [number for number, (_, config) in grid.nodes.items() if config["site"] == site]
    config = grid.nodes[number][1]

    def app(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        hit = message.metadata.message_type == kind and message.content["order"]["round"] == round
        return spoil(reply) if hit else reply

    grid.nodes[number] = app, config


def raising(reply: Message) -> Message:
    """As Flower answers for an app that raised."""
    from flwr.app import Error

    return Message(Error(2, "ZeroDivisionError"), reply_to=reply)


def not_finite(reply: Message) -> Message:
    array = reply.content["arrays"]["3.bias"].numpy()
    reply.content["arrays"]["3.bias"] = Array(np.full_like(array, math.nan))
    return reply


def misshapen(reply: Message) -> Message:
    reply.content["arrays"]["3.bias"] = Array(np.zeros(11, dtype=np.float32))
    return reply


def boasting(reply: Message) -> Message:
    reply.content["evaluation"]["acc"] = math.nan
    return reply


def saying_nan(reply: Message) -> Message:
    reply.content["report"]["loss"] = math.nan
    return reply


@pytest.mark.parametrize(
    ("kind", "spoil", "why"),
    [
        ("train", not_finite, "its weights are not finite"),
        ("train", misshapen, r"'3.bias' must be float32 (10,), got float32 (11,)"),
        ("query.report", saying_nan, "its report says loss = nan"),
        ("query.report", boasting, "'evaluation.acc'"),
    ],
)
def test_a_faulty_answer_is_left_out_by_name_in_its_round_only(kind, spoil, why, grid, configured):
    with_fault(grid, "celle", kind, 3, spoil)
    experiment, deployment = configured("fedpca-hs", **{"method.fedpca-hs.warmup": 2})
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    left_out = [line["left_out"] for line in lines(folder)]
    assert [list(out) for out in left_out] == [[], [], ["celle"], []]
    assert why in left_out[2]["celle"]
    assert lines(folder)[2]["clients"]["weight"][2] == 0


def test_without_a_site_the_others_go_on_as_if_they_were_alone(grid: Loopback, shards, configured):
    with_fault(grid, "celle", "train", 1, not_finite)
    experiment, deployment = configured("fedavg", rounds=1)
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    rest = {name: shard for name, shard in shards.items() if name != "celle"}
    assert equal(final(folder), expected(in_process(experiment, method_of(experiment, "fedavg"), rest)))


def test_a_site_that_raises_tells_its_kind_of_error_but_not_its_data(grid: Loopback, configured):
    number = 100 + NAMES.index("celle")
    data = Path(grid.nodes[number][1]["data"])

    def spoil(message: Message) -> None:
        if message.metadata.dst_node_id == number and message.metadata.group_id == "2":
            (data / "images.npz").write_bytes(b"patient Smith")

    grid.before = spoil
    experiment, deployment = configured("fedavg", rounds=2)
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    assert [line["left_out"] for line in lines(folder)] == [{}, {"celle": "it failed: DataError"}]


def test_a_silent_site_is_left_out_and_comes_back(grid: Loopback, configured):
    def hush(message: Message) -> None:
        grid.silent = {101} if message.metadata.group_id == "2" else set()

    grid.before = hush
    experiment, deployment = configured("fedavg", rounds=3)
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    assert [line["left_out"] for line in lines(folder)] == [{}, {"bonn": "it did not answer within 0.5 s"}, {}]


@pytest.mark.parametrize(("back", "why"), [(True, "it restarted"), (False, "it went offline")])
def test_nobody_waits_for_the_deadline_of_a_node_that_is_gone(back: bool, why: str, grid: Loopback, configured):
    def pull_the_plug(message: Message) -> None:
        if message.metadata.group_id == "2" and 101 in grid.nodes:
            node = grid.nodes.pop(101)
            if back:
                grid.nodes[201] = node

    grid.before = pull_the_plug
    experiment, deployment = configured("fedavg", rounds=3, **{"deploy.deadline": 600.0})
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    left_out = [line["left_out"] for line in lines(folder)]
    assert left_out == [{}, {"bonn": why}, {} if back else {"bonn": "it is not there"}]


def test_a_site_that_joins_later_takes_part_from_the_next_round_on(grid: Loopback, configured):
    late = grid.nodes.pop(105)

    def admit(message: Message) -> None:
        if message.metadata.group_id == "2":
            grid.nodes[105] = late

    grid.before = admit
    experiment, deployment = configured("fedavg", rounds=4, **{"deploy.sites": 5})
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    assert [len(line["clients"]["id"]) for line in lines(folder)] == [5, 5, 6, 6]
    assert lines(folder)[-1]["clients"]["weight"][5] > 0
    (found,) = find_runs([deployment.out])
    assert set(found.last()) == set(NAMES[:5]), "only what was tested in all of the last rounds can be averaged"


def test_a_site_that_does_not_fit_is_turned_away_by_name(grid: Loopback, configured, tmp_path: Path):
    np.savez(tmp_path / "odd.npz", x=np.zeros((8, 9, 9), dtype=np.uint8), y=np.arange(8) % 2)
    grid.nodes[106] = client_app, {"site": "odd", "data": str(tmp_path / "odd.npz"), "store": str(tmp_path / "odd")}
    experiment, deployment = configured("fedavg", rounds=1)
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    assert "odd" not in lines(folder)[0]["clients"]["id"]
    assert "its images are 1x9x9" in lines(folder)[0]["left_out"]["odd"]


def test_below_the_quorum_the_run_stops_and_goes_on_later_to_the_same_bits(grid: Loopback, shards, configured):
    experiment, deployment = configured("fedce", rounds=4, **{"deploy.quorum": 5})

    def hush(message: Message) -> None:
        if message.metadata.group_id == "3":
            grid.silent = {100, 101}

    grid.before = hush
    with pytest.raises(
        RunError, match=r"round 3: 4 of 6 sites answered, the quorum is 5 \(aachen: .*; bonn: .*0.5 s\)"
    ):
        serve(grid, experiment, deployment, log=lambda text: None)
    grid.before, grid.silent = lambda message: None, set()
    said: list[str] = []
    folder = serve(grid, experiment, deployment, log=said.append)
    assert "going on after round 2" in said
    assert equal(final(folder), expected(in_process(experiment, method_of(experiment, "fedce"), shards)))
    assert [line["round"] for line in lines(folder)] == [1, 2, 3, 4]
    assert all(line["groups"] for line in lines(folder))


@pytest.mark.parametrize(
    ("method", "when"),
    [("fedavg", 1), ("fedcorr", 2), ("fedce", 3), ("fedpca-hs", 4), ("fedrn", 3), ("fedelc", 4)],
)
def test_a_server_that_dies_in_any_round_goes_on_to_the_same_bits(method: str, when: int, grid, shards, configured):
    warm = {f"method.{method}.warmup": 2} if method == "fedpca-hs" else {}
    experiment, deployment = configured(method, **warm)

    class PowerCut(BaseException):
        pass

    def cut(message: Message) -> None:
        if message.metadata.group_id == str(when) and message.metadata.dst_node_id == 103:
            raise PowerCut

    grid.before = cut
    with pytest.raises(PowerCut):
        serve(grid, experiment, deployment, log=lambda text: None)
    grid.before = lambda message: None
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    assert equal(final(folder), expected(in_process(experiment, method_of(experiment, method), shards)))
    assert [line["round"] for line in lines(folder)] == [1, 2, 3, 4]


def test_a_finished_run_is_left_as_it_is(grid: Loopback, configured):
    experiment, deployment = configured("fedavg", rounds=1)
    serve(grid, experiment, deployment, log=lambda text: None)
    grid.sent.clear()
    said: list[str] = []
    serve(grid, experiment, deployment, log=said.append)
    assert said[0].endswith("holds this run, finished")
    assert not grid.sent


def test_other_settings_in_the_same_folder_are_refused(grid: Loopback, configured):
    serve(grid, *configured("fedavg", rounds=1), log=lambda text: None)
    with pytest.raises(RunError, match=r"begun with other settings \(training.batch was 16, is now 8\)"):
        serve(grid, *configured("fedavg", rounds=1, **{"training.batch": 8}), log=lambda text: None)


def test_noise_on_reports_is_the_sites_own_choice_first(grid: Loopback, configured):
    grid.nodes[100][1]["privacy.clip"] = 0.001
    experiment, deployment = configured("qfedavg", rounds=1, **{"deploy.privacy.clip": 0.5})
    folder = serve(grid, experiment, deployment, log=lambda text: None)
    assert lines(folder)[0]["clients"]["loss"] == [0.001, 0.5, 0.5, 0.5, 0.5, 0.5]


# One exchange


@pytest.mark.parametrize("method", ["fedpca-hs", "fedpca-d-auto", "fedism", "fedga+fedcorr", "fedavg+d"])
def test_one_exchange_judges_by_the_last_rounds_reports(method: str, federation: Federation):
    table = {"rounds": 5, "methods": [method], "seeds": [0], "model": {"name": "mlp"}, "data": {"clients": 6}}
    warm = {"method": {method: {"warmup": 1}}} if "pca" in method or "+d" in method else {}
    experiment = check_experiment({**table, **warm}, "one")
    server = in_process(experiment, in_one_exchange(method_of(experiment, method)), dict(federation.shards))
    assert server.params.weights.isfinite().all()
    assert not server.left_out
    if "pca" in method:
        assert all(verdict.group for verdict in server.diagnosis.values())
        assert all("dispersion" in verdict.report for verdict in server.diagnosis.values())


def test_a_method_without_reports_is_the_same_in_one_exchange():
    experiment = check_experiment({"methods": ["fedavg"]}, "one")
    assert in_one_exchange(method_of(experiment, "fedavg")) == method_of(experiment, "fedavg")


def test_a_client_does_not_load_what_it_does_not_use():
    """Each answer is a new process: what it imports is what it costs."""
    names = "scipy", "sklearn", "pyarrow", "PIL.Image", "fedpca.runs.run", "fedpca.data"
    code = f"import sys, fedpca.flower.apps; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# For people who have a Flower app


def net() -> nn.Module:
    return build("mlp", (1, 8, 8), 10, 5).module


@pytest.fixture
def own_apps(federation: Federation, tmp_path: Path) -> Loopback:
    """Flower's simulation tells a node its number; the user's function takes its data by it."""

    def load_data(context: Context):
        shard, test = federation.shards[str(context.node_config["partition-id"])], federation.tests["common"]
        return shard.x[torch.arange(len(shard.y))], shard.y, test.x, test.y

    app = fedpca_client(load_data, net)
    return Loopback({9 - n: (app, {"partition-id": n, "store": str(tmp_path / str(n))}) for n in range(6)})


def test_the_drop_in_gives_the_engines_bits(own_apps: Loopback, federation: Federation, tmp_path: Path):
    start = build("mlp", (1, 8, 8), 10, 0)
    strategy = FedPCA(
        "fedpca-hs",
        settings={"warmup": 1},
        training={"batch": 16},
        deployment=Deployment(sites=6),
        log=lambda text: None,
    )
    result = strategy.start(
        grid=own_apps,
        initial_arrays=ArrayRecord(start.module.state_dict()),
        num_rounds=3,
        train_config=ConfigRecord({"lr": 0.1}),
        evaluate_fn=lambda round, arrays: MetricRecord({"round": round, "arrays": len(arrays)}),
    )
    table = {"rounds": 3, "methods": ["fedpca-hs"], "seeds": [0], "method": {"fedpca-hs": {"warmup": 1}}}
    training = {"batch": 16, "lr": 0.1}
    same = {**table, "model": {"name": "mlp"}, "training": training, "aggregation": BOUNDS}
    experiment = check_experiment(same, "same")
    here = in_process(experiment, method_of(experiment), dict(federation.shards))
    assert isinstance(result, Result)
    assert equal(dict(result.arrays.to_torch_state_dict()), expected(here))
    assert list(result.evaluate_metrics_serverapp) == [0, 1, 2, 3]
    assert list(result.evaluate_metrics_clientapp) == [1, 2, 3]
    assert result.evaluate_metrics_clientapp[3]["worst-acc"] <= result.evaluate_metrics_clientapp[3]["acc"]
    assert {f"{n}/mislabeled" for n in range(6)} <= set(result.train_metrics_clientapp[3])


def test_the_drop_in_refuses_what_it_does_not_know(own_apps: Loopback):
    with pytest.raises(SettingsError, match=r"train_config: unknown key 'batchsize' .did you mean 'batch-size'"):
        FedPCA().task(20, ConfigRecord({"batchsize": 3}))
    with pytest.raises(SettingsError, match="rounds = 3, but fedpca-hs-auto warms up for 10"):
        FedPCA("fedpca-hs-auto").task(3, ConfigRecord())
    with pytest.raises(SettingsError, match=r"FedPCA: training\.lr: .*number"):
        FedPCA(training={"lr": "fast"}).task(20, ConfigRecord())
    with pytest.raises(SettingsError, match=r"FedPCA: unknown key 'method\.fedavg\.q'"):
        FedPCA("fedavg", {"q": 1.0}).task(20, ConfigRecord())


def test_arrays_tell_weights_from_what_batch_norm_counts():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    layout, known = layout_from(ArrayRecord(module.state_dict())), layout_of(module)
    assert replace(layout, weights=()) == replace(known, weights=())
    assert layout.weights == known.weights


def test_the_drop_in_passes_estimates_on_with_their_intervals():
    unclear = Verdict("common", 0.2, estimate=Estimate(0.2, 0.0, 0.62, "cannot tell"))
    alone = Verdict("common", None, estimate=Estimate(None, 0.0, 0.5, "cannot tell"))
    clear = Verdict("mislabeled", 0.34, estimate=Estimate(0.34, 0.22, 0.47, "mislabeled"))
    sites = {"bonn": unclear, "essen": alone, "mainz": clear, "trier": Verdict("rare", 0.9)}
    start = build("mlp", (1, 8, 8), 10, 0)
    told = metrics_of(Server(layout_of(start.module).params(start.module.state_dict()), diagnosis=sites))
    assert [told[f"bonn/{name}"] for name in ("suspicion", "suspicion_low", "suspicion_high", "cannot_tell")] == [
        *(0.2, 0.0, 0.62, 1.0)
    ]
    assert (told["mainz/mislabeled"], told["mainz/cannot_tell"], told["mainz/suspicion_high"]) == (1.0, 0.0, 0.47)
    assert "essen/suspicion" not in told
    assert told["essen/cannot_tell"] == 1.0
    assert not {"trier/suspicion_low", "trier/cannot_tell"} & set(told)
