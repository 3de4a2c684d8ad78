"""What tests of both engines with real processes share: processes, waits with a limit, the same data, the same bits."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from fedpca import InProcess, Server, Workers, build, federate, load, params_of, play, read_experiment
from fedpca.core import Shard
from fedpca.models.flat import layout_of
from fedpca.operate.processes import free_port
from fedpca.operate.supervisor import alive, descendants, send
from fedpca.runs.check import check_experiment, method_of

LIMIT = 900.0  # seconds, for a machine that does much else; a quiet one needs a tenth


@dataclass
class Parties:
    """A server and its sites, all on this machine, each a process with a log in this folder."""

    folder: Path
    prefix: list[str]  # before a command, to have it without a network
    shards: dict[str, Shard]
    port: int = field(default_factory=free_port)
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def spawn(self, name: str, command: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.started[name] = subprocess.Popen(
                [*self.prefix, *command], cwd=self.folder, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return self.started[name]

    def kill(self, name: str) -> None:
        """As if its plug were pulled."""
        process = self.started.pop(name)
        family = {process.pid, *descendants([process.pid])}
        send(list(family), signal.SIGKILL)
        process.wait()
        self.wait_for(lambda: not alive(family))

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


def digits(names: Sequence[str]) -> dict[str, Shard]:
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


def assert_engines_bits(shards: dict[str, Shard], folder: Path) -> None:
    """The final weights are those of the in-process engine on the same data."""
    expected, found = expected_weights(folder / "settings.toml", shards), load_file(folder / "final.safetensors")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def expected_weights(settings_file: Path, shards: dict[str, Shard]) -> dict[str, torch.Tensor]:
    settings = read_experiment(settings_file)
    workers = Workers([build(settings.model.name, (1, 8, 8), 10, 0)])
    method = method_of(settings)
    clients = InProcess(method, shards, workers, 0, batched=False)
    *_, server = play(method, clients, Server(params_of(workers.nets[0])), settings.rounds)
    return layout_of(workers.nets[0].module).named(server.params)
