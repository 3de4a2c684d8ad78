"""Server, sites and runs as real processes: TLS, registered keys, where the machine allows it no network but loopback.

The engine's bits, and faults that hold nobody up. Every wait has a limit, and whatever was started is ended.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from fedpca.core import Shard
from fedpca.operate.keys import make_keys
from fedpca.operate.supervisor import alive, descendants
from fedpca.results.page import write_page
from fedpca.results.read.runs import find_runs
from tests.real import LIMIT, Parties, assert_engines_bits, digits, write_data
from tests.sites.hospitals import simulated, write_hospitals
from tests.unmeasured import unmeasured

NAMES = ("aachen", "bonn", "celle", "dessau", "essen", "fulda", "gotha", "halle")
COMPONENTS = {"serverapp": "fedpca.flower.apps:server_app", "clientapp": "fedpca.flower.apps:client_app"}
FEDPCA = [sys.executable, "-m", "fedpca"]


class Federation(Parties):
    """Each is started as its operator would."""

    def start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        env = {**unmeasured(), "FEDPCA_CACHE": str(self.folder / "cache")}
        return self.spawn(name, [*FEDPCA, "deploy", *options], env)

    def start_server(self) -> None:
        before = self.log("server").count("ready at")
        self.start("server", "server", "--keys", "keys/server", "--port", str(self.port))
        self.wait_for(lambda: self.log("server").count("ready at") > before)

    def start_site(self, name: str) -> None:
        own = ["--site", name, "--keys", f"keys/sites/{name}", "--data", f"data/{name}"]
        self.start(name, "client", *own, "--server", f"127.0.0.1:{self.port}")

    def end(self) -> None:
        family = descendants(process.pid for process in self.started.values())
        for process in self.started.values():
            process.terminate()
        for process in self.started.values():
            process.wait(120)
        for pid in alive(family):
            os.kill(pid, signal.SIGKILL)

    def run(self, components: dict[str, str] = COMPONENTS, **config: object) -> subprocess.Popen[bytes]:
        """Starts a run, which shows its log to the end."""
        self.write_app(components, **config)
        return self.start("run", "run", "app")

    def write_app(self, components: dict[str, str] = COMPONENTS, **config: object) -> None:
        app = self.folder / "app"
        app.mkdir(exist_ok=True)
        table = {"name": "trial", "seeds": 0, "model.name": "mlp", "training.batch": 16, "deploy.wait": LIMIT, **config}
        flower = {"publisher": "fedpca", "components": components, "config": table}
        project = {"name": "trial", "version": "0.1.0", "dependencies": []}
        (app / "pyproject.toml").write_text(tomli_w.dumps({"project": project, "tool": {"flwr": {"app": flower}}}))


def made(folder: Path, prefix: list[str], sites: int) -> Iterator[Federation]:
    federation = Federation(folder, prefix, digits(NAMES[:sites]))
    write_data(folder / "data", federation.shards)
    yield from started(federation, list(federation.shards))


def started(federation: Federation, names: Sequence[str]) -> Iterator[Federation]:
    """The same federation, with keys and processes for sites of these names."""
    make_keys(list(names), federation.folder / "keys")
    try:
        federation.start_server()
        for name in names:
            federation.start_site(name)
        yield federation
    finally:
        federation.end()


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory, prefix: list[str]) -> Iterator[Federation]:
    yield from made(tmp_path_factory.mktemp("four"), prefix, 4)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory, prefix: list[str]) -> Iterator[Federation]:
    yield from made(tmp_path_factory.mktemp("eight"), prefix, 8)


@pytest.fixture
def hospitals(tmp_path: Path, prefix: list[str]) -> Iterator[Federation]:
    """Four sites, each with a table of numbers."""
    write_hospitals(tmp_path / "data", NAMES[:4])
    yield from started(Federation(tmp_path, prefix, {}), NAMES[:4])


def played(federation: Federation, sites: int, killed_after: int | None) -> None:
    config = {"methods": "fedpca-hs", "rounds": 5, "method.fedpca-hs.warmup": 3, "deploy.deadline": LIMIT}
    config |= {"deploy.sites": sites, "deploy.quorum": sites, "deploy.out": str(federation.folder / "equal")}
    folder = federation.folder / "equal" / "fedpca-hs" / "seed-0"
    run = federation.run(**config)
    if killed_after:
        federation.wait_for(lambda: len(federation.lines("equal", "fedpca-hs")) >= killed_after, run)
        federation.kill("server")
        assert run.wait(LIMIT) == 1
        assert "the server went away" in federation.log("run")
        assert not (folder / "summary.json").exists()
        federation.start_server()
        run = federation.run(**config)
    assert run.wait(LIMIT) == 0, federation.tails()
    lines = federation.lines("equal", "fedpca-hs")
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]
    assert all(not line["left_out"] for line in lines)
    assert set(lines[-1]["groups"]) == set(federation.shards)
    assert_engines_bits(federation.shards, folder)
    page = write_page(find_runs([federation.folder / "equal"]))
    assert all(name in page for name in federation.shards)


def test_four_sites_and_a_server_killed_in_between_give_the_engines_bits(four: Federation):
    played(four, 4, killed_after=3)


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_SLOW" not in os.environ, reason="takes minutes: set FEDPCA_SLOW=1")
def test_eight_sites_give_the_engines_bits(eight: Federation):
    played(eight, 8, killed_after=None)


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_SLOW" not in os.environ, reason="takes minutes: set FEDPCA_SLOW=1")
def test_tables_at_four_sites_and_a_server_killed_in_between_give_the_bits_of_a_simulation(hospitals: Federation):
    out, method = hospitals.folder / "tables", "fedpca-hs-auto"
    config = {"methods": method, "rounds": 6, f"method.{method}.warmup": 2, "deploy.deadline": LIMIT}
    config |= {"deploy.sites": 4, "deploy.quorum": 4, "deploy.out": str(out)}
    run = hospitals.run(**config)
    hospitals.wait_for(lambda: len(hospitals.lines("tables", method)) >= 2, run)
    hospitals.kill("server")
    assert run.wait(LIMIT) == 1
    hospitals.start_server()
    assert hospitals.run(**config).wait(LIMIT) == 0, hospitals.tails()
    assert all(not line["left_out"] for line in hospitals.lines("tables", method))
    expected, came = (
        simulated(hospitals.folder / "data", method)[0],
        load_file(out / method / "seed-0/final.safetensors"),
    )
    assert expected.keys() == came.keys()
    assert all(torch.equal(expected[name], came[name]) for name in expected)


SPY = '''
    """The client app; what it answers is also written down, as the bytes that travel."""
    from pathlib import Path
    from uuid import uuid4
    from flwr.clientapp import ClientApp
    from fedpca.flower.apps import client_app as good

    def every_byte(thing):
        return thing.deflate() + b"".join(every_byte(child) for child in (thing.children or {}).values())

    class Spy(ClientApp):
        def __call__(self, message, context):
            reply = good(message, context)
            folder = Path(context.node_config["store"]).parent / "sent"
            folder.mkdir(exist_ok=True)
            kind = message.metadata.message_type
            (folder / f"{kind}-{uuid4().hex}").write_bytes(every_byte(reply))
            if kind == "train" and context.node_config["site"] == "celle":
                (folder.parent / "trained").touch()
            return reply

    app = Spy()
'''


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_SLOW" not in os.environ, reason="takes minutes: set FEDPCA_SLOW=1")
def test_an_audit_of_four_sites_one_of_them_killed_in_the_middle_sends_no_row(four: Federation):
    """TLS, keys, real processes: rates for the coordinator, lists at the sites, and nothing of a row in any message."""
    out = four.folder / "audited"
    four.write_app(
        {**COMPONENTS, "clientapp": "spy:app"},
        methods="fedavg",
        rounds=5,
        **{"deploy.sites": 4, "deploy.deadline": 300.0, "deploy.out": str(out)},
    )
    (four.folder / "app" / "spy.py").write_text(dedent(SPY))
    run = four.start("audit", "audit", "app", "--rounds", "3", "--folds", "2", "--sample", "7")
    four.wait_for((four.folder / "site-celle" / "trained").exists, run)
    four.kill("celle")
    four.start_site("celle")
    assert run.wait(LIMIT) == 0, four.tails()
    record = json.loads((out / "audit" / "audit.json").read_text())
    assert {own["client"] for own in record["clients"]} == set(four.shards)
    assert record["engine"].startswith("real sites, flwr ")
    assert "celle is gone" in four.log("audit") or "celle is there" in four.log("audit")
    for name, shard in four.shards.items():
        shown = subprocess.run(
            [*FEDPCA, "audit", "--site", f"site-{name}"], cwd=four.folder, capture_output=True, text=True, check=True
        )
        assert f"{name}: " in shown.stdout
        folder = four.folder / f"site-{name}" / "store" / "audit"
        rows = len(shard.y) + len(shard.y[::5])
        assert len((folder / "suspects.csv").read_text().splitlines()) == 1 + rows
        assert folder.stat().st_mode & 0o077 == 0
        _assert_no_row(four.folder / f"site-{name}" / "sent", shard, rows)


def _assert_no_row(folder: Path, shard: Shard, rows: int) -> None:
    """No label, row number, path or image in what a site sent; and nothing that is as long as its rows are many."""
    sent = {path.name.partition("-")[0]: b"" for path in folder.iterdir()}
    for path in folder.iterdir():
        sent[path.name.partition("-")[0]] += path.read_bytes()
    assert {"query.hello", "train", "query.summary", "query.list"} <= sent.keys()
    secrets = [b"images.npz", b"suspects", str(folder.parent).encode()]
    kinds = ("int64", "int32", "uint8", "float32", "float64")
    secrets += [shard.y[:20].numpy().astype(kind).tobytes() for kind in kinds]
    secrets += [np.arange(20).astype(kind).tobytes() for kind in kinds]
    secrets += [shard.x[torch.arange(1)].numpy().astype(kind).tobytes() for kind in kinds]
    assert not [secret for secret in secrets if any(secret in content for content in sent.values())]
    assert len(sent["query.list"]) < 2000
    assert len(sent["query.summary"]) < 20_000  # counts of bins, whatever the number of rows


FAULTY = '''
    """The client app, but for what goes wrong where and when it is told so."""
    import time
    from pathlib import Path
    import numpy as np
    from flwr.app import Array
    from flwr.clientapp import ClientApp
    from fedpca.flower.apps import client_app as good

    app = ClientApp()
    app.query("hello")(good)
    app.evaluate()(good)

    @app.train()
    def train(message, context):
        what = context.node_config["site"], message.content["order"]["round"]
        if what == ("bonn", 1):
            raise RuntimeError("the scanner is on fire")
        if what == ("celle", 2):
            (Path(context.node_config["store"]) / "waiting").touch()
            time.sleep(600)
        reply = good(message, context)
        if what == ("dessau", 1):
            for name, array in reply.content["arrays"].items():
                reply.content["arrays"][name] = Array(np.full_like(array.numpy(), np.nan))
        return reply
'''


def test_faults_hold_nobody_up_and_are_named(four: Federation):
    """A client that raises, one that sends NaN, and a node whose plug is pulled in the middle of a round."""
    (four.folder / "app").mkdir(exist_ok=True)
    (four.folder / "app" / "faulty.py").write_text(dedent(FAULTY))
    out = four.folder / "faults"
    deploy = {"deploy.sites": 4, "deploy.quorum": 2, "deploy.deadline": 300.0, "deploy.out": str(out)}
    run = four.run({**COMPONENTS, "clientapp": "faulty:app"}, methods="fedavg", rounds=6, **deploy)
    four.wait_for((four.folder / "site-celle" / "store" / "waiting").exists, run)
    four.kill("celle")
    four.start_site("celle")
    assert run.wait(LIMIT) == 0, four.tails()
    lines = four.lines("faults", "fedavg")
    fire = "it failed: <class 'RuntimeError'>:<'the scanner is on fire'>"
    assert lines[0]["left_out"] == {"bonn": fire, "dessau": "its weights are not finite"}
    assert list(lines[1]["left_out"]) == ["celle"]
    assert lines[1]["left_out"]["celle"] in ("it restarted", "it went offline")
    assert lines[-1]["left_out"] == {}, "everybody came back"
    assert lines[-1]["clients"]["weight"] == pytest.approx([0.25] * 4)
    assert not re.search(r"(?<![.\d])\d{15}", json.dumps(lines)), "sites have names, not Flower's numbers"


def test_a_policy_that_forbids_wins_over_a_run_that_asks(four: Federation):
    """It is read at each message: from now on bonn tells no loss, whatever the server asks for.

    Celle refuses what an epsilon of 8 would spend, and the others have written down what they told.
    """
    rules, out = {"bonn": 'reports = ["dispersion"]', "celle": "max_epsilon = 2"}, four.folder / "forbidden"
    policies = {site: four.folder / f"site-{site}" / "store" / "site-policy.toml" for site in rules}
    for site, policy in policies.items():
        policy.parent.mkdir(parents=True, exist_ok=True)
        policy.write_text(rules[site])
    deploy = {"deploy.sites": 4, "deploy.quorum": 2, "deploy.deadline": LIMIT, "deploy.out": str(out)}
    try:
        run = four.run(methods="qfedavg", rounds=1, **deploy, **{"deploy.privacy.epsilon": 8.0})
        assert run.wait(LIMIT) == 0, four.tails()
    finally:
        for policy in policies.values():
            policy.unlink()
    why = "its policy allows the reports dispersion; the method says loss"
    spends = "its policy allows its reports an epsilon of 2 in all its runs; with this run they would spend 8"
    (line,) = four.lines("forbidden", "qfedavg")
    assert line["left_out"] == {"bonn": why, "celle": spends}
    assert set(line["groups"]) == {"aachen", "dessau"}
    assert line["privacy"] == {"reports": pytest.approx(8.0, abs=2e-4)}
    (told,) = (four.folder / "site-aachen" / "store" / "privacy").glob("*.json")
    assert json.loads(told.read_text())["000001-report"]["report"]["loss"] in line["clients"]["loss"]
    assert f"bonn is turned away: {why}" in four.log("run")
    assert f"[bonn] refused to answer 'hello': {why}" in four.log("bonn")


def test_below_the_quorum_the_run_fails_and_says_so(four: Federation):
    deploy = {"deploy.sites": 5, "deploy.quorum": 5, "deploy.wait": 20.0, "deploy.out": str(four.folder / "short")}
    run = four.run(methods="fedavg", rounds=1, **{**deploy, "deploy.deadline": 60.0})
    assert run.wait(LIMIT) == 1, four.tails()
    assert re.search(r"[0-4] of 5 sites joined within 20 s", four.log("run")), four.log("run")
