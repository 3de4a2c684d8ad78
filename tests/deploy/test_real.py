"""SuperLink, SuperNodes and a run as real processes on loopback: the engine's bits, and faults that hold nobody up.

Every wait has a limit, and whatever was started is ended.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from threading import Event

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from fedpca import InProcess, Server, Workers, build, compose, federate, load, params_of, play, read_experiment
from fedpca.core import Shard
from fedpca.deploy.keeper import descendants, send
from fedpca.deploy.processes import Child, end, environment, flwr, free_port, program, wait_until_open
from fedpca.params import layout_of
from fedpca.results.page import write_page
from fedpca.results.runs import find_runs
from fedpca.scenario import check_experiment

NAMES = ("aachen", "bonn", "celle", "dessau", "essen", "fulda", "gotha", "halle")
LIMIT = 900.0  # seconds, for a machine that does much else; a quiet one needs a tenth
COMPONENTS = {"serverapp": "fedpca.deploy.server:app", "clientapp": "fedpca.deploy.client:app"}


@dataclass
class Federation:
    """A server and its sites, all on this machine."""

    folder: Path
    port: int
    shards: dict[str, Shard]
    children: dict[str, Child] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        own = {"FEDPCA_CACHE": str(self.folder / "cache"), "PYTHONPATH": str(self.folder / "app")}
        inherited = environment(self.folder / "home")
        inherited.pop("COVERAGE_PROCESS_CONFIG", None)  # to measure coverage would double what each message takes
        return {**inherited, **own}

    def start_server(self) -> None:
        command = [program("flower-superlink"), "--insecure", "--port", str(self.port)]
        self.children["server"] = Child("server", command, self.env, self.log)
        assert wait_until_open(self.port, self.children["server"], Event())

    def start_site(self, name: str) -> None:
        config = self.folder / f"{name}.toml"
        store = str(self.folder / "store" / name)
        config.write_text(tomli_w.dumps({"site": name, "data": str(self.folder / "data" / name), "store": store}))
        command = [program("flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{self.port}"]
        command += ["--node-config", str(config), "--port", str(free_port())]
        self.children[name] = Child(name, command, self.env, self.log)

    def kill(self, name: str) -> None:
        """As if its plug were pulled."""
        pid = self.children[name].process.pid
        send([pid, *descendants([pid])], signal.SIGKILL)
        self.children.pop(name).process.wait()

    def submit(self, components: dict[str, str] = COMPONENTS, **config: object) -> str:
        """Starts a run; its number."""
        app = self.folder / "app"
        app.mkdir(exist_ok=True)
        table = {"name": "trial", "seeds": 0, "model.name": "mlp", "training.batch": 16, "deploy.wait": LIMIT, **config}
        flower = {"publisher": "fedpca", "components": components, "config": table}
        project = {"name": "trial", "version": "0.1.0", "dependencies": []}
        (app / "pyproject.toml").write_text(tomli_w.dumps({"project": project, "tool": {"flwr": {"app": flower}}}))
        return str(flwr(["run", str(app)], self.env)["run-id"])

    def status(self, run: str) -> str:
        (found,) = flwr(["list", "--run-id", run], self.env)["runs"]
        return f"{found['status']} {found.get('status-details')}"

    def wait_for(self, what: Callable[[], object], run: str) -> None:
        """Waits until something is so; a run that ends before that ends the wait."""
        limit = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < limit, f"nothing within {LIMIT} s; the log ends with {self.tail()}"
            time.sleep(1)
            if int(time.monotonic()) % 15 == 0:
                assert not self.status(run).startswith("finished") or what(), self.tail()

    def log(self, line: str) -> None:
        with (self.folder / "log.txt").open("a") as file:
            file.write(line + "\n")

    def tail(self) -> str:
        return "\n".join((self.folder / "log.txt").read_text().splitlines()[-60:])

    def lines(self, out: str, method: str) -> list[dict]:
        path = self.folder / out / method / "seed-0" / "rounds.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def digits(sites: int) -> dict[str, Shard]:
    """Digits of so many sites, the last one's images noisy, another's labels wrong."""
    table = {"data": {"clients": sites, "train_images": 60 * sites}, "rare": {"share": 1 / sites, "sigma": 0.5}}
    settings = check_experiment({**table, "noise": {"clients": 1 / sites, "labels": 0.8}}, "digits")
    shards = federate(settings, load(settings.data)).shards.values()
    return {name: Shard(own.x[torch.arange(len(own.y))], own.y) for name, own in zip(NAMES, shards, strict=False)}


def made(folder: Path, sites: int) -> Iterator[Federation]:
    federation = Federation(folder, free_port(), digits(sites))
    connection = {"address": f"127.0.0.1:{federation.port}", "insecure": True}
    (folder / "home").mkdir(parents=True)
    settings = tomli_w.dumps({"superlink": {"default": "here", "here": connection}})
    (folder / "home" / "config.toml").write_text(settings)
    for name, shard in federation.shards.items():
        (folder / "data" / name).mkdir(parents=True)
        held = torch.arange(0, len(shard.y), 5)
        np.savez(
            folder / "data" / name / "images.npz",
            x_train=shard.x,
            y_train=shard.y,
            x_test=shard.x[held],
            y_test=shard.y[held],
        )
    try:
        federation.start_server()
        for name in federation.shards:
            federation.start_site(name)
        yield federation
    finally:
        end(list(federation.children.values()))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    yield from made(tmp_path_factory.mktemp("four"), 4)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    yield from made(tmp_path_factory.mktemp("eight"), 8)


def assert_engines_bits(federation: Federation, folder: Path) -> None:
    """The final weights are those of the in-process engine on the same data."""
    settings = read_experiment(folder / "settings.toml")
    workers = Workers([build(settings.model.name, (1, 8, 8), 10, 0)])
    method = compose(settings.methods[0], settings)
    clients = InProcess(method, federation.shards, workers, 0, together=False)
    *_, server = play(method, clients, Server(params_of(workers.nets[0])), settings.rounds)
    expected, came = layout_of(workers.nets[0].module).named(server.params), load_file(folder / "final.safetensors")
    assert expected.keys() == came.keys()
    assert all(torch.equal(expected[name], came[name]) for name in expected)


def played(federation: Federation, sites: int, out: str, killed_after: int | None) -> None:
    config = {"methods": "fedpca-hs", "rounds": 5, "method.fedpca-hs.warmup": 3}
    deploy = {"deploy.sites": sites, "deploy.quorum": sites, "deploy.out": str(federation.folder / out)}
    folder = federation.folder / out / "fedpca-hs" / "seed-0"
    run = federation.submit(**config, **deploy, **{"deploy.deadline": LIMIT})
    if killed_after:
        federation.wait_for(lambda: len(federation.lines(out, "fedpca-hs")) >= killed_after, run)
        processes = descendants([federation.children["server"].process.pid])
        (app,) = [pid for pid in processes if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(app, signal.SIGKILL)
        assert not (folder / "summary.json").exists()
        run = federation.submit(**config, **deploy, **{"deploy.deadline": LIMIT})
    federation.wait_for((folder / "summary.json").exists, run)
    lines = federation.lines(out, "fedpca-hs")
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]
    assert all(not line["left_out"] for line in lines)
    assert set(lines[-1]["groups"]) == set(federation.shards)
    assert_engines_bits(federation, folder)
    page = write_page(find_runs([federation.folder / out]))
    assert all(name in page for name in federation.shards)


def test_four_sites_and_a_server_killed_in_between_give_the_engines_bits(four: Federation):
    played(four, 4, "equal", killed_after=3)


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_SLOW" not in os.environ, reason="takes minutes: set FEDPCA_SLOW=1")
def test_eight_sites_give_the_engines_bits(eight: Federation):
    played(eight, 8, "equal", killed_after=None)


FAULTY = '''
    """The client app, but for what goes wrong where and when it is told so."""
    import time
    from pathlib import Path
    import numpy as np
    from flwr.app import Array
    from flwr.clientapp import ClientApp
    from fedpca.deploy.client import app as good

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
    run = four.submit({**COMPONENTS, "clientapp": "faulty:app"}, methods="fedavg", rounds=4, **deploy)
    waiting = four.folder / "store" / "celle" / "waiting"
    four.wait_for(waiting.exists, run)
    four.kill("celle")
    four.start_site("celle")
    four.wait_for((out / "fedavg" / "seed-0" / "summary.json").exists, run)
    lines = four.lines("faults", "fedavg")
    fire = "it failed: <class 'RuntimeError'>:<'the scanner is on fire'>"
    assert lines[0]["left_out"] == {"bonn": fire, "dessau": "its weights are not finite"}
    assert list(lines[1]["left_out"]) == ["celle"]
    assert lines[1]["left_out"]["celle"] in ("it restarted", "it went offline")
    assert lines[3]["left_out"] == {}, "everybody came back"
    assert lines[3]["clients"]["weight"] == pytest.approx([0.25] * 4)
    numbers = re.findall(r"SuperNode ID: (\d+)", (four.folder / "log.txt").read_text())
    assert len(numbers) >= 5
    assert not any(number in json.dumps(lines) for number in numbers), "sites have names"


def test_below_the_quorum_the_run_fails_and_says_so(four: Federation):
    (four.folder / "app").mkdir(exist_ok=True)
    shutil.rmtree(four.folder / "data" / "bonn")
    out = four.folder / "short"
    deploy = {"deploy.sites": 4, "deploy.quorum": 4, "deploy.wait": 90.0, "deploy.out": str(out)}
    run = four.submit(methods="fedavg", rounds=1, **{**deploy, "deploy.deadline": 60.0})
    limit = time.monotonic() + LIMIT
    while not four.status(run).startswith("finished"):
        assert time.monotonic() < limit
        time.sleep(2)
    assert four.status(run).startswith("finished:failed")
    assert "3 of 4 sites came within 90 s" in four.status(run)
