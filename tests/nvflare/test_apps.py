"""Site and server halves within this process: same bits as the engine, faults by name, nothing hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedpca.core import Failure, Shard
from fedpca.errors import RunError, WireError
from fedpca.nvflare import engine as lines
from fedpca.nvflare.apps import FedPCAServer
from fedpca.nvflare.engine import LegEndedError, NVFlareEngine
from fedpca.nvflare.wire import unpack
from fedpca.sites import roster
from fedpca.sites.audit import serve_audit
from fedpca.sites.deployment import read_deployment
from fedpca.sites.run import serve
from tests.nvflare.federation import NAMES
from tests.nvflare.sites import LocalSite, caller  # noqa: F401 (a fixture)
from tests.real import digits, expected_weights, write_data


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(roster, "REFRESH", 0.0)
    monkeypatch.setattr(roster, "POLL", 0.05)
    for name, seconds in (("PULSE", 0.05), ("PAUSE", 0.05), ("UNREACHABLE", 0.3)):
        monkeypatch.setattr(lines, name, seconds)
    monkeypatch.setenv("FEDPCA_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def shards() -> dict[str, Shard]:
    return digits(NAMES)


@pytest.fixture
def sites(shards: dict[str, Shard], tmp_path: Path, caller: SimpleNamespace) -> dict[str, LocalSite]:  # noqa: F811
    write_data(tmp_path / "data", shards)
    return {name: LocalSite(name, tmp_path / name, data=str(tmp_path / "data" / name)) for name in shards}


@pytest.fixture
def engine(sites: dict[str, LocalSite]) -> Iterator[NVFlareEngine]:
    made = NVFlareEngine({name: site.call for name, site in sites.items()}, lambda: None, Event())
    yield made
    made.close()


def settings(tmp_path: Path, **changes: object) -> tuple:
    table = {"name": "trial", "methods": "fedavg", "rounds": 3, "model": {"name": "mlp"}, "training": {"batch": 16}}
    deploy = {"out": str(tmp_path / "runs"), "sites": 4, "deadline": 60.0, "wait": 30.0}
    return read_deployment({**table, **changes, "deploy": {**deploy, **changes.get("deploy", {})}}, "the test")


def rounds(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_the_bits_are_the_engines_also_of_a_method_with_memory_at_the_sites(
    engine: NVFlareEngine, shards: dict[str, Shard], tmp_path: Path
):
    said: list[str] = []
    folder = serve(engine, *settings(tmp_path, methods="fedcorr", rounds=3), said.append)
    expected, found = expected_weights(folder / "settings.toml", shards), load_file(folder / "final.safetensors")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not any(line["left_out"] for line in rounds(folder))
    assert json.loads((folder / "about.json").read_text())["versions"]["nvflare"].startswith("2.")
    assert said[-1].startswith("finished: ")


def test_a_job_that_is_to_end_ends_between_two_rounds_and_the_next_goes_on_with_the_same_bits(
    sites: dict[str, LocalSite], shards: dict[str, Shard], tmp_path: Path
):
    ending, said = Event(), []
    calls = {name: site.call for name, site in sites.items()}

    def log(line: str) -> None:
        said.append(line)
        if line.startswith("round 2/"):
            ending.set()

    first = NVFlareEngine(calls, lambda: None, ending)
    with pytest.raises(LegEndedError):
        serve(first, *settings(tmp_path, rounds=4), log)
    first.close()
    assert said[-1].startswith("round 2/")
    second = NVFlareEngine(calls, lambda: None, Event())
    folder = serve(second, *settings(tmp_path, rounds=4), said.append)
    second.close()
    assert "going on after round 2" in said
    assert [line["round"] for line in rounds(folder)] == [1, 2, 3, 4]
    expected, found = expected_weights(folder / "settings.toml", shards), load_file(folder / "final.safetensors")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_faults_are_named_without_a_word_of_the_sites_data(
    engine: NVFlareEngine, sites: dict[str, LocalSite], tmp_path: Path
):
    """One raises in our code, one in NVFlare's, one goes away in the middle of a round and comes back."""
    bonn, celle, dessau = (sites[name] for name in ("bonn", "celle", "dessau"))
    good = bonn.site.read_data

    def log(line: str) -> None:
        if line.startswith("round 1/"):
            bonn.site.read_data = lambda *arguments: 1 / 0 if "patient 4711" else None
            celle.raising, dessau.away = "take", True
        if line.startswith("round 2/"):
            bonn.site.read_data, celle.raising, dessau.away = good, "", False
            back = time.monotonic()
            while any(line.heard < back for line in engine.lines) and time.monotonic() < back + 60:
                time.sleep(0.01)

    folder = serve(engine, *settings(tmp_path, rounds=3, deploy={"quorum": 1}), log)
    first, second, third = rounds(folder)
    assert first["left_out"] == third["left_out"] == {}
    assert second["left_out"]["bonn"] == "it failed: ZeroDivisionError"
    assert second["left_out"].keys() == {"bonn", "celle", "dessau"}
    assert "4711" not in json.dumps(rounds(folder))


def test_a_site_that_is_slow_is_late_and_is_not_waited_for_again(
    engine: NVFlareEngine, sites: dict[str, LocalSite], tmp_path: Path
):
    good, slow = sites["celle"].site.answer, Event()

    def answer(kind, packed, end):
        if json.loads(packed["tables"]).get("order", {}).get("round") == 1 and not slow.is_set():
            slow.set()
            time.sleep(4.0)
        return good(kind, packed, end)

    sites["celle"].site.answer = answer
    folder = serve(engine, *settings(tmp_path, rounds=3, deploy={"deadline": 3.0, "quorum": 2}), lambda line: None)
    assert "did not answer" in rounds(folder)[0]["left_out"]["celle"]
    assert rounds(folder)[-1]["left_out"] == {}


def test_without_a_quorum_the_run_ends_and_names_who_is_missing(
    engine: NVFlareEngine, sites: dict[str, LocalSite], tmp_path: Path
):
    for name in ("aachen", "bonn", "celle"):
        sites[name].away = True
    with pytest.raises(RunError, match=r"1 of 4 sites joined within 3 s \(dessau\), the quorum is 3"):
        serve(engine, *settings(tmp_path, deploy={"wait": 3.0}), lambda line: None)


def test_a_sites_policy_keeps_it_out_by_name(engine: NVFlareEngine, sites: dict[str, LocalSite], tmp_path: Path):
    store = tmp_path / "bonn" / "fedpca-store"
    store.mkdir()
    (store / "site-policy.toml").write_text('methods = ["fedpca*"]')
    folder = serve(engine, *settings(tmp_path, rounds=1), lambda line: None)
    (line,) = rounds(folder)
    assert list(line["left_out"]) == ["bonn"]
    assert "its policy" in line["left_out"]["bonn"]


def test_an_audit_leaves_rates_at_the_server_and_lists_at_the_sites(
    engine: NVFlareEngine, shards: dict[str, Shard], tmp_path: Path
):
    experiment, deployment = settings(tmp_path, deploy={"audit": {"rounds": 2, "folds": 2, "sample": 5, "images": 2}})
    out = serve_audit(engine, experiment, deployment, deployment.audit, lambda line: None)
    record = json.loads((out / "audit.json").read_text())
    assert {own["client"] for own in record["clients"]} == set(shards)
    assert record["engine"].startswith("real sites, nvflare 2.")
    assert all((tmp_path / name / "fedpca-store" / "audit" / "suspects.csv").exists() for name in shards)


def test_only_the_server_may_ask(sites: dict[str, LocalSite], caller: SimpleNamespace):  # noqa: F811
    """NVFlare would let every site of a job call the others."""
    caller.caller = "bonn"
    for method, values in (
        ("put", {"number": "1", "kind": "hello", "tables": "{}", "states": {}, "seconds": 1.0}),
        ("is_ready", {"number": "1", "seconds": 0.0}),
        ("take", {"number": "1"}),
    ):
        with pytest.raises(WireError, match="only the server"):
            sites["aachen"].call(method, 1.0, **values)


def test_a_message_that_nobody_waits_for_any_more_is_not_answered(sites: dict[str, LocalSite]):
    reply = sites["aachen"].site.answer("report", {"tables": "{}", "states": {}}, time.monotonic() - 1)
    with pytest.raises(WireError, match="too late"):
        unpack(reply)


def test_what_a_site_gets_and_cannot_read_is_an_answer_too(sites: dict[str, LocalSite]):
    reply = sites["aachen"].site.answer("report", {"tables": "[" * 10**5, "states": {}}, time.monotonic() + 60)
    with pytest.raises(WireError, match="it failed: WireError"):
        unpack(reply)


def test_data_are_read_once_for_all_messages_of_a_run(
    engine: NVFlareEngine, sites: dict[str, LocalSite], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from fedpca.data import datasets

    asked, good = [], datasets.load
    monkeypatch.setattr(datasets, "load", lambda own: asked.append(own.dataset) or good(own))
    serve(engine, *settings(tmp_path), lambda line: None)
    assert all(sum(place.endswith(name) for place in asked) <= 2 for name in NAMES), "once to join, once to train"


def test_the_operators_command_gets_each_line_once_and_can_end_the_job():
    server = FedPCAServer()
    server.log("one")
    assert server.tell("fedpca", {"after": 0, "end": 0}, None) == {"lines": ["one"]}
    server.log("two")
    assert server.tell("fedpca", {"after": 1, "end": 1}, None) == {"lines": ["two"]}
    assert server.ending.is_set()


def test_an_engines_failures_are_its_own_words(engine: NVFlareEngine, sites: dict[str, LocalSite]):
    sites["bonn"].raising = "put"
    end = time.monotonic() + 10
    while len(engine.nodes()) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    node = next(node for node, name in engine.nodes().items() if name == "bonn")
    from fedpca.sites.messages import Content

    (number,) = engine.send("hello", {node: Content({"n": {"x": np.float64(1).item()}})}, 5.0)
    replies: dict = {}
    while not replies and time.monotonic() < end:
        replies = dict(engine.receive([number]))
    assert replies[number] == Failure("its answer got lost")
