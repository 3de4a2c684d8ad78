"""A provisioned federation on this machine: kits with certificates, the processes that their operators start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tomli_w
import torch
from benchmarks.nvflare_kits import ADMIN, SERVER, kit_of, project_of

from fedpca import InProcess, Server, Workers, build, federate, load, params_of, play
from fedpca.core import Shard
from fedpca.models.flat import layout_of
from fedpca.operate.processes import free_port
from fedpca.operate.supervisor import alive, descendants, send
from fedpca.runs.check import check_experiment, method_of
from fedpca.settings.toml import nest
from tests.unmeasured import unmeasured

ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "nvflare-hospitals" / "job"
NAMES = ("aachen", "bonn", "celle", "dessau")
LIMIT = 900.0  # seconds, for a machine that does much else; a quiet one needs a tenth
BIN = str(Path(sys.executable).parent)


@dataclass
class Federation:
    """A server and its sites, all on this machine, each started as its operator would."""

    folder: Path
    prefix: list[str]  # before a command, to have it without a network
    shards: dict[str, Shard]
    port: int = field(default_factory=free_port)
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        own = {"FEDPCA_CACHE": str(self.folder / "cache"), "HOME": str(self.folder), "PYTHONPATH": str(ROOT)}
        return {**unmeasured(), **own, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def kit(self, name: str, project: str = "kits") -> Path:
        return kit_of(self.folder / project, name)

    def provision(self, project: str = "kits", names: Sequence[str] = NAMES) -> None:
        """Certificates and kits, by NVFlare's own command; each operator then allows fedpca's classes."""
        path = self.folder / f"{project}.json"
        path.write_text(json.dumps(project_of(self.port, names)))
        self.do("nvflare", "provision", "-p", str(path), "-w", str(self.folder / project), "--force")
        self.do("fedpca", "deploy", "kit", str(self.kit(SERVER, project)))
        for name in names:
            data = self.folder / "data" / name
            own = ["--data", str(data), "--set", f"store={json.dumps(str(self.folder / 'store' / name))}"]
            self.do("fedpca", "deploy", "kit", str(self.kit(name, project)), *own)
            resources = self.kit(name, project) / "local" / "resources.json"
            table = json.loads(resources.read_text())
            table["class_allow_list"].append("tests.nvflare.faulty.")
            resources.write_text(json.dumps(table))

    def do(self, *command: str) -> str:
        done = subprocess.run(
            command, check=False, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.started[name] = subprocess.Popen(
                [*self.prefix, *command],
                cwd=self.folder,
                env=self.env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        return self.started[name]

    def start_party(self, name: str, project: str = "kits") -> None:
        self.start(name, "bash", str(self.kit(name, project) / "startup" / "sub_start.sh"), "--once")

    def kill(self, name: str) -> None:
        """As if its plug were pulled."""
        process = self.started.pop(name)
        family = {process.pid, *descendants([process.pid])}
        send(list(family), signal.SIGKILL)
        process.wait()
        self.wait_for(lambda: not alive(family))

    def end(self) -> None:
        family = {process.pid for process in self.started.values()}
        family |= descendants(family)
        send(list(family), signal.SIGKILL)
        for process in self.started.values():
            process.wait(120)

    def run(self, site: str = "", **config: object) -> subprocess.Popen[bytes]:
        """Starts a run, which shows its log to the end; `site` is the class of another site."""
        return self.start(
            "run", "fedpca", "deploy", "nvflare", str(self.write_job(site, **config)), "--kit", str(self.kit(ADMIN))
        )

    def write_job(self, site: str = "", **config: object) -> Path:
        folder = self.folder / "job"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(JOB, folder)
        table = {"name": "trial", "seeds": 0, "model.name": "mlp", "training.batch": 16, "deploy.wait": 120.0, **config}
        (folder / "app" / "config" / "fedpca.toml").write_text(tomli_w.dumps(nest(table)))
        if site:
            path = folder / "app" / "config" / "config_fed_client.json"
            path.write_text(path.read_text().replace("fedpca.nvflare.apps.FedPCASite", site))
        return folder

    def wait_for(self, what: Callable[[], object], run: subprocess.Popen[bytes] | None = None) -> None:
        """Waits until something is so; a run that ends before that ends the wait."""
        limit = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < limit, f"nothing within {LIMIT} s; {self.tails()}"
            assert run is None or run.poll() is None or what(), self.tails()
            time.sleep(0.2)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def tails(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))

    def lines(self, out: str, method: str) -> list[dict]:
        path = self.folder / out / method / "seed-0" / "rounds.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def digits(names: Sequence[str] = NAMES) -> dict[str, Shard]:
    """Digits of these sites, the last one's images noisy, another's labels wrong."""
    sites = len(names)
    table = {"data": {"clients": sites, "train_images": 60 * sites}, "rare": {"share": 1 / sites, "sigma": 0.5}}
    settings = check_experiment({**table, "noise": {"clients": 1 / sites, "labels": 0.8}}, "digits")
    shards = federate(settings, load(settings.data)).shards.values()
    return {name: Shard(own.x[torch.arange(len(own.y))], own.y) for name, own in zip(names, shards, strict=True)}


def write_data(folder: Path, shards: dict[str, Shard]) -> None:
    for name, shard in shards.items():
        (folder / name).mkdir(parents=True)
        held = torch.arange(0, len(shard.y), 5)
        arrays = {"x_train": shard.x, "y_train": shard.y, "x_test": shard.x[held], "y_test": shard.y[held]}
        np.savez(folder / name / "images.npz", **{key: value.numpy() for key, value in arrays.items()})


def expected_weights(settings_file: Path, shards: dict[str, Shard]) -> dict[str, torch.Tensor]:
    """The final weights of the in-process engine on the same data."""
    from fedpca import read_experiment

    settings = read_experiment(settings_file)
    workers = Workers([build(settings.model.name, (1, 8, 8), 10, 0)])
    method = method_of(settings)
    clients = InProcess(method, shards, workers, 0, batched=False)
    *_, server = play(method, clients, Server(params_of(workers.nets[0])), settings.rounds)
    return layout_of(workers.nets[0].module).named(server.params)


def started(federation: Federation) -> Iterator[Federation]:
    """The same federation, with kits and processes."""
    try:
        write_data(federation.folder / "data", federation.shards)
        federation.provision()
        for name in (SERVER, *federation.shards):
            federation.start_party(name)
        yield federation
    finally:
        federation.end()
