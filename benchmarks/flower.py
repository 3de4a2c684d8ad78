"""Seconds of an exchange and bytes of a round over Flower, beside Flower's own FedAvg in the same run."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import tomli_w
import torch

from fedpca import federate, load
from fedpca.errors import RunError
from fedpca.operate.processes import LOOPBACK, Child, end, environment, flwr, free_port, program, wait_until_open
from fedpca.operate.run import run_status
from fedpca.runs.check import check_experiment

SITES, TURNS = 4, 7
LIMIT, ASK_EVERY = 1800, 30  # seconds; each question is a process that loads Flower, beside what is measured
ROOT = Path(__file__).parents[1]
RUN = {  # a method that asks for reports, and whose training is FedAvg's
    "methods": "fedpca-hs",
    "method.fedpca-hs.warmup": 0,
    "method.fedpca-hs.sharpness.radius": 0.0,
    "rounds": 99,
    "seeds": 0,
    "training.batch": 16,
    "training.lr": 0.05,
    "evaluation.every": 1000,
}


def measure() -> dict[str, object]:
    """Medians of exchanges in turns, four sites on this machine; the ratio is that of training to FedAvg's training."""
    with tempfile.TemporaryDirectory() as name:
        figures = _run_turns(Path(name))
    seconds = figures["seconds_per_exchange"]
    ratios = {f"{kind}_to_fedavg": round(seconds[kind] / seconds["flower_fedavg"], 2) for kind in ("train", "report")}
    return {**ratios, **figures}


def _run_turns(folder: Path) -> dict[str, dict[str, float]]:
    out = folder / "figures.json"
    write_sites(folder)
    with federation(folder, {**RUN, "turns": TURNS, "figures": str(out), "deploy.sites": SITES}) as app:
        _wait_for(out, app)
    found: dict[str, dict[str, float]] = json.loads(out.read_text())
    return found


@dataclass(frozen=True)
class App:
    """An app that runs, and the processes that it needs."""

    number: str
    env: Mapping[str, str]
    children: Sequence[Child]

    def check(self) -> None:
        """Raises where one of its processes has ended."""
        if ended := [child.name for child in self.children if child.ended() is not None]:
            raise RunError(f"the process of {ended[0]} ended before the run did")


@contextmanager
def federation(folder: Path, config: Mapping[str, object]) -> Iterator[App]:
    """The app `flower_app` on Flower's server and a process for each site, on loopback and without TLS."""
    port = free_port()
    (folder / "home").mkdir()
    env = {**environment(folder / "home"), **own_environment(folder)}
    _write_app(folder, port, config)
    children = [Child("server", [program("flower-superlink"), "--insecure", "--port", str(port)], env, ignore)]
    try:
        wait_until_open(port, children[0], Event())
        for site in range(SITES):
            command = [program("flower-supernode"), "--insecure", "--superlink", f"{LOOPBACK}:{port}"]
            command += ["--port", str(free_port()), "--node-config", str(folder / f"{site}.toml")]
            children.append(Child(str(site), command, env, ignore))
        yield App(str(flwr(["run", str(folder / "app")], env)["run-id"]), env, children)
    finally:
        end(children)


def own_environment(folder: Path) -> dict[str, str]:
    """What processes of a benchmark see besides: this checkout, and a cache of their own."""
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": python_path, "FEDPCA_CACHE": str(folder / "cache")}


def _wait_for(out: Path, app: App) -> None:
    """Waits for the figures, no longer than the run and its processes live."""
    for second in range(LIMIT):
        if out.exists():
            return
        app.check()
        if second % ASK_EVERY == ASK_EVERY - 1 and (status := run_status(app.number, app.env))[0].startswith(
            "finished"
        ):
            raise RunError(f"the run is {status[0]} without figures: {status[1] or 'Flower does not say why'}")
        time.sleep(1)
    raise RunError(f"the run has no figures after {LIMIT} s")


def write_sites(folder: Path) -> list[Path]:
    """A folder of data for each site."""
    settings, folders = check_experiment({"data": {"clients": SITES}}, "digits"), []
    for site, shard in federate(settings, load(settings.data)).shards.items():
        own = folder / "data" / site
        own.mkdir(parents=True)
        x = shard.x[torch.arange(len(shard.y))].numpy()
        np.savez(own / "images.npz", x_train=x, y_train=shard.y, x_test=x[:64], y_test=shard.y[:64])
        folders.append(own)
    return folders


def _write_app(folder: Path, port: int, config: Mapping[str, object]) -> None:
    """What each site and the operator's command read, and an app whose code is `flower_app`."""
    for site in (folder / "data").iterdir():
        node = {"site": site.name, "data": str(site), "store": str(folder / "store" / site.name)}
        (folder / f"{site.name}.toml").write_text(tomli_w.dumps(node))
    here = {"address": f"{LOOPBACK}:{port}", "insecure": True}
    (folder / "home" / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": "here", "here": here}}))
    components = {"serverapp": "benchmarks.flower_app:server", "clientapp": "benchmarks.flower_app:client"}
    app = {"publisher": "fedpca", "components": components, "config": {**config}}
    (folder / "app").mkdir()
    project = {"name": "turns", "version": "0.1.0", "dependencies": []}
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    (folder / "app" / "pyproject.toml").write_text(text)


def ignore(line: str) -> None:
    """Shows nothing of a process's log."""
