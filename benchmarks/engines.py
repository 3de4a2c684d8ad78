"""Seconds of an exchange over NVFlare beside Flower's deployment: both up at once, with the same sites, in turns."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, product
from pathlib import Path
from threading import Event

import tomli_w

from benchmarks.flower import ROOT, RUN, federation, ignore, own_environment, write_sites
from benchmarks.nvflare_kits import ADMIN, SERVER, kit_of, project_of
from benchmarks.turns import MODEL, READY, ask, finish, wait_for
from fedpca.errors import RunError
from fedpca.nvflare.kit import ALLOW_LIST, RESOURCES, prepare_kit, read_resources
from fedpca.operate.processes import Child, end, environment, free_port, program, wait_until_open
from fedpca.settings.toml import nest

TURNS = 7
KINDS = ("train", "report")
JOB = ROOT / "examples" / "nvflare-hospitals" / "job"
SERVER_CLASS, OUR_CLASS = "fedpca.nvflare.apps.FedPCAServer", "benchmarks.nvflare_app.TurnServer"
Ask = Callable[[str], float]  # the seconds of an exchange of one kind


def measure() -> dict[str, object]:
    """Medians of exchanges in turns, four sites on this machine, and Flower's over NVFlare's."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        data = write_sites(folder)
        engines = {
            "flower": stack.enter_context(_flower(folder, len(data))),
            "nvflare": stack.enter_context(_nvflare(folder, data)),
        }
        seconds = take_turns(engines)
    medians = {kind: {name: statistics.median(own) for name, own in both.items()} for kind, both in seconds.items()}
    ratios = {f"{kind}, flower over nvflare": round(own["flower"] / own["nvflare"], 1) for kind, own in medians.items()}
    return {**ratios, "medians": medians, "seconds": seconds}


def take_turns(engines: Mapping[str, Ask]) -> dict[str, dict[str, list[float]]]:
    """The seconds of each kind and engine; who is first changes, and a turn to warm up is not counted."""
    seconds: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in engines} for kind in KINDS}
    for turn, kind in product(range(TURNS + 1), KINDS):
        names = list(engines)
        for name in names[turn % 2 :] + names[: turn % 2]:
            taken = engines[name](kind)
            if turn:
                seconds[kind][name].append(round(taken, 3))
    return seconds


@contextmanager
def _flower(folder: Path, sites: int) -> Iterator[Ask]:
    asked = _folder(folder / "asked-of-flower")
    with federation(folder, {**RUN, "deploy.sites": sites, "deploy.out": str(asked)}) as app:
        yield from _asking(asked, app.check)


@contextmanager
def _nvflare(folder: Path, data: Sequence[Path]) -> Iterator[Ask]:
    """NVFlare's server and a process for each site, with its certificates and TLS."""
    asked, port = _folder(folder / "asked-of-nvflare"), free_port()
    env = {**environment(folder / "nvflare-home"), **own_environment(folder), "HOME": str(folder)}
    kits, children = _provision(folder, port, data, env), list[Child]()

    def start(name: str, *command: str) -> Child:
        children.append(Child(name, command, env, ignore))
        return children[-1]

    def check() -> None:
        if ended := [child for child in children if child.ended() is not None]:
            raise RunError(f"the process of {ended[0].name} ended before the run did: {' '.join(ended[0].last)[-600:]}")

    try:
        for kit in kits:
            child = start(kit.name, "bash", str(kit / "startup" / "sub_start.sh"), "--once")
            if kit.name == SERVER:
                wait_until_open(port, child, Event())
        job = _write_job(folder / "job", len(data), asked)
        start("run", program("fedpca"), "deploy", "nvflare", str(job), "--kit", str(kits[0].parent / ADMIN))
        yield from _asking(asked, check)
    finally:
        end(children[::-1])


def _asking(asked: Path, check: Callable[[], None]) -> Iterator[Ask]:
    """How to ask an engine that is ready; at the end it is told that there are no more turns."""
    turns = count(1)
    wait_for(asked / READY, check)
    yield lambda kind: ask(asked, next(turns), kind, check)
    finish(asked, next(turns))


def _provision(folder: Path, port: int, data: Sequence[Path], env: Mapping[str, str]) -> list[Path]:
    """The startup kits of the server and the sites, which allow fedpca's classes and those of this benchmark."""
    (folder / "project.json").write_text(json.dumps(project_of(port, [f"site{own.name}" for own in data])))
    words = [program("nvflare"), "provision", "-p", str(folder / "project.json"), "-w", str(folder / "kits"), "--force"]
    subprocess.run(words, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    kits = {kit_of(folder / "kits", SERVER): None, **{kit_of(folder / "kits", f"site{own.name}"): own for own in data}}
    for kit, own in kits.items():
        prepare_kit(kit, own, {})
        resources = read_resources(kit)
        resources[ALLOW_LIST].append("benchmarks.")
        (kit / "local" / RESOURCES).write_text(json.dumps(resources))
    return list(kits)


def _write_job(folder: Path, sites: int, asked: Path) -> Path:
    """The example's job, with a server that plays turns."""
    shutil.copytree(JOB, folder)
    config = folder / "app" / "config"
    settings = {**RUN, "name": "turns", "model.name": MODEL}
    settings |= {"deploy.sites": sites, "deploy.quorum": sites, "deploy.out": str(asked)}
    (config / "fedpca.toml").write_text(tomli_w.dumps(nest(settings)))
    path = config / "config_fed_server.json"
    path.write_text(path.read_text().replace(SERVER_CLASS, OUR_CLASS))
    return folder


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
