"""Seconds of an exchange and bytes of a round over Flower, beside Flower's own FedAvg in the same run."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

import numpy as np
import tomli_w
import torch

from fedpca import federate, load
from fedpca.errors import RunError
from fedpca.operate.processes import Child, end, environment, flwr, free_port, program, wait_until_open
from fedpca.operate.run import run_status
from fedpca.runs.check import check_experiment

SITES, TURNS = 4, 7
LIMIT, ASK_EVERY = 1800, 30  # seconds; each question is a process that loads Flower, beside what is measured
ROOT = Path(__file__).parents[1]


def measure() -> dict[str, object]:
    """Medians of exchanges in turns, four sites on this machine; the ratio is that of training to FedAvg's training."""
    with tempfile.TemporaryDirectory() as name:
        figures = _run_turns(Path(name))
    seconds = figures["seconds_per_exchange"]
    ratios = {f"{kind}_to_fedavg": round(seconds[kind] / seconds["flower_fedavg"], 2) for kind in ("train", "report")}
    return {**ratios, **figures}


def _run_turns(folder: Path) -> dict[str, dict[str, float]]:
    port, out = free_port(), folder / "figures.json"
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**environment(folder / "home"), "PYTHONPATH": python_path, "FEDPCA_CACHE": str(folder / "cache")}
    _prepare(folder, port, out)
    children = [Child("server", [program("flower-superlink"), "--insecure", "--port", str(port)], env, _ignore)]
    try:
        wait_until_open(port, children[0], Event())
        for site in range(SITES):
            command = [program("flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{port}"]
            command += ["--port", str(free_port()), "--node-config", str(folder / f"{site}.toml")]
            children.append(Child(str(site), command, env, _ignore))
        number = str(flwr(["run", str(folder / "app")], env)["run-id"])
        _wait_for(out, number, env, children)
        found: dict[str, dict[str, float]] = json.loads(out.read_text())
        return found
    finally:
        end(children)


def _wait_for(out: Path, number: str, env: Mapping[str, str], children: Sequence[Child]) -> None:
    """Waits for the figures, no longer than the run and its processes live."""
    for second in range(LIMIT):
        if out.exists():
            return
        if ended := [child.name for child in children if child.ended() is not None]:
            raise RunError(f"the process of {ended[0]} ended before the run did")
        if second % ASK_EVERY == ASK_EVERY - 1 and (status := run_status(number, env))[0].startswith("finished"):
            raise RunError(f"the run is {status[0]} without figures: {status[1] or 'Flower does not say why'}")
        time.sleep(1)
    raise RunError(f"the run has no figures after {LIMIT} s")


def _prepare(folder: Path, port: int, out: Path) -> None:
    """The sites' data, and an app whose code is `flower_app`."""
    settings = check_experiment({"data": {"clients": SITES}}, "digits")
    for site, shard in federate(settings, load(settings.data)).shards.items():
        (folder / "data" / site).mkdir(parents=True)
        x = shard.x[torch.arange(len(shard.y))].numpy()
        np.savez(folder / "data" / site / "images.npz", x_train=x, y_train=shard.y, x_test=x[:64], y_test=shard.y[:64])
        node = {"site": site, "data": str(folder / "data" / site), "store": str(folder / "store" / site)}
        (folder / f"{site}.toml").write_text(tomli_w.dumps(node))
    (folder / "home").mkdir()
    here = {"address": f"127.0.0.1:{port}", "insecure": True}
    (folder / "home" / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": "here", "here": here}}))
    config = {"turns": TURNS, "figures": str(out), "methods": "fedpca-hs", "method.fedpca-hs.warmup": 0, "rounds": 99}
    config |= {"training.batch": 16, "training.lr": 0.05, "method.fedpca-hs.sharpness.radius": 0.0}
    config |= {"deploy.sites": SITES, "evaluation.every": 1000, "seeds": 0}
    components = {"serverapp": "benchmarks.flower_app:server", "clientapp": "benchmarks.flower_app:client"}
    app = {"publisher": "fedpca", "components": components, "config": config}
    (folder / "app").mkdir()
    project = {"name": "turns", "version": "0.1.0", "dependencies": []}
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    (folder / "app" / "pyproject.toml").write_text(text)


def _ignore(line: str) -> None:
    pass
