"""A run needs of an engine only to carry messages: over one of thirty lines it gives the bits of a simulation."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedpca.core import Failure, Server, Shard
from fedpca.data.federation import Federation
from fedpca.errors import RunError
from fedpca.loop import play
from fedpca.models.build import build
from fedpca.models.flat import layout_of, params_of
from fedpca.runs.check import method_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from fedpca.sites import clients, roster
from fedpca.sites.answer import answer, explain
from fedpca.sites.data import SiteData
from fedpca.sites.deployment import read_deployment
from fedpca.sites.messages import Content
from fedpca.sites.run import serve
from fedpca.sites.settings import Deployment, SiteSettings
from tests.sites.engine import Direct


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roster, clients):
        monkeypatch.setattr(module, "POLL", 0.01)


@pytest.fixture
def configured(tmp_path: Path) -> tuple[Experiment, Deployment]:
    table = {"methods": "fedpca-hs", "rounds": 3, "model": {"name": "mlp"}, "training": {"batch": 16}}
    deploy = {"sites": 6, "out": str(tmp_path / "runs"), "wait": 5, "deadline": 0.5}
    return read_deployment({**table, "method": {"fedpca-hs": {"warmup": 1}}, "deploy": deploy}, "test")


@pytest.fixture
def engine(federation: Federation, tmp_path: Path) -> Direct:
    def read_data(shard: Shard, *_: object) -> SiteData:
        net = partial(build, "mlp", federation.shape, 10, seed=7)
        return SiteData(shard, federation.tests["common"], tuple("0123456789"), federation.shape, net)

    def node(name: str, kind: str, content: Content) -> Content:
        settings = SiteSettings(site=name, store=tmp_path / name)
        return answer(kind, content, settings, read_data, federation.shards[name])

    return Direct({number: partial(node, name) for number, name in enumerate(federation.shards)})


def test_any_engine_gives_the_bits_of_a_simulation(engine: Direct, configured, federation: Federation):
    experiment, deployment = configured
    folder = serve(engine, experiment, deployment, log=lambda text: None)
    method, workers = method_of(experiment, "fedpca-hs"), Workers([build("mlp", federation.shape, 10, 0)])
    here = InProcess(method, federation.shards, workers, 0, batched=False)
    *_, server = play(method, here, Server(params_of(workers.nets[0])), 3)
    expected, got = layout_of(workers.nets[0].module).named(server.params), load_file(folder / "final.safetensors")
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert json.loads((folder / "about.json").read_text())["versions"]["direct"] == "1"
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert all(set(line["groups"]) == set(federation.shards) for line in lines)
    assert [exchange["kind"] for exchange in lines[-1]["exchanges"]] == ["report", "train"]


@pytest.mark.parametrize(("method", "warns"), [("fedavg", False), ("fedpca-hs", True)])
def test_a_finished_run_goes_on_with_more_rounds(engine: Direct, configured, tmp_path: Path, method: str, warns: bool):
    experiment, deployment = configured
    said: list[str] = []
    longer = experiment.model_copy(update={"methods": (method,), "rounds": 5})
    serve(engine, longer.model_copy(update={"rounds": 3}), deployment, log=said.append)
    folder = serve(engine, longer, deployment, log=said.append)
    assert any("goes on after round 3: rounds was 3, is now 5" in line for line in said)
    assert any(line.startswith("warning: ") for line in said) is warns
    assert ("earlier_plans" in json.loads((folder / "about.json").read_text())) is warns
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]
    assert all(line["groups"] for line in lines)
    straight = serve(engine, longer, deployment.model_copy(update={"out": tmp_path / "straight"}), log=said.append)
    expected, got = load_file(straight / "final.safetensors"), load_file(folder / "final.safetensors")
    assert warns or all(torch.equal(expected[name], got[name]) for name in expected)


def test_below_the_quorum_a_run_says_whose_answers_are_missing(engine: Direct, configured):
    experiment, deployment = configured
    for number in (0, 1, 2):
        say_hello = engine.answers[number]
        engine.answers[number] = lambda kind, content, say=say_hello: (
            say(kind, content) if kind == "hello" else Failure("it is on fire")
        )
    with pytest.raises(RunError, match=r"round 1: 3 of 6 sites answered, the quorum is 4 \(0: it is on fire; 1: "):
        serve(engine, experiment, deployment, log=lambda text: None)


def test_a_site_that_is_stopped_and_one_whose_data_are_gone_are_left_out_and_come_back(
    engine: Direct, configured, monkeypatch: pytest.MonkeyPatch
):
    """As after SIGSTOP in the middle of a round, and after the data folder was taken away."""
    experiment, deployment = configured
    honest, send = dict(engine.answers), engine.send

    def without_data(kind: str, content: Content) -> Content | Failure:
        if kind == "train" and read_order_round(content) == 1:
            return Failure(explain(FileNotFoundError(2, "No such file", "/secret/data")))
        return honest[2](kind, content)

    def sent(kind: str, contents: dict[int, Content], seconds: float, number: int = 0) -> dict[str, int]:
        messages = send(kind, contents, seconds, number)
        if kind == "train" and number == 1:
            engine.waiting = {key: own for key, own in engine.waiting.items() if messages.get(key) != 1}
        return messages

    engine.answers |= {2: without_data}
    monkeypatch.setattr(engine, "send", sent)
    folder = serve(engine, experiment, deployment, log=lambda text: None)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert lines[0]["left_out"] == {"1": "it did not answer within 0.5 s", "2": "FileNotFoundError"}
    assert [line["left_out"] for line in lines[1:]] == [{}, {}]


def read_order_round(content: Content) -> int:
    return int(content.tables["order"]["round"])
