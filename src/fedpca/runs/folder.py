"""The run folder: settings, a line per round, checkpoint, summary and final weights; whole files or none, no pickle."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedpca.atomic import to_disk
from fedpca.atomic import write_whole as write_whole  # noqa: PLC0414 (offered here too, for those who write run folders)
from fedpca.core import ClientId, Params, Server, Verdict
from fedpca.errors import RunError

Memory = dict[ClientId, dict[str, Tensor]]
Line = dict[str, Any]  # one round as JSON

SETTINGS, ROUNDS, ABOUT = "settings.toml", "rounds.jsonl", "about.json"
VECTORS = ("weights", "buffers", "counters")
SUMMARY, FINAL, CHECKPOINT = "summary.json", "final.safetensors", "checkpoint/state.safetensors"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps a second process from writing the same run folder; the lock dies with its process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{folder} is being written by another process") from None
        yield


def append_round(folder: Path, line: Line) -> None:
    """Adds one round to rounds.jsonl."""
    with (folder / ROUNDS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")
        to_disk(file)  # before the checkpoint that counts on it


def keep_rounds(folder: Path, rounds: int) -> None:
    """Cuts rounds.jsonl back to its first rounds; those after the checkpoint are played again, to the same values."""
    path = folder / ROUNDS
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if len(lines) < rounds or any(not line.endswith(b"\n") for line in lines[:rounds]):
        raise RunError(f"{path} has fewer than the {rounds} rounds of its checkpoint; delete {folder} and start again")
    if len(lines) > rounds:
        write_whole(path, b"".join(lines[:rounds]))


def save_checkpoint(folder: Path, server: Server, memory: Memory) -> None:
    """Writes all that the run needs to go on, in one file."""
    state = {
        "round": server.round,
        "diagnosis": {client: asdict(verdict) for client, verdict in server.diagnosis.items()},
        "weights": server.weights,
        "left_out": dict(server.left_out),
        "sides": list(server.sides),
        "lengths": server.params.lengths,
    }
    tensors = _tensors("params", server.params)
    for side, params in server.sides.items():
        tensors |= _tensors(f"sides/{side}", params)
    tensors |= {f"memory/{client}\n{key}": own[key].contiguous() for client, own in memory.items() for key in own}
    write_whole(folder / CHECKPOINT, save(tensors, {"server": json.dumps(state)}))


def load_checkpoint(folder: Path) -> tuple[Server, Memory]:
    """The server and the clients' memories as they were saved."""
    path = folder / CHECKPOINT
    try:
        with safe_open(path, "pt") as file:
            state = json.loads(file.metadata()["server"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise RunError(f"the checkpoint {path} cannot be read ({error}); delete {folder} and start again") from None
    memory: Memory = {}
    for name, tensor in tensors.items():
        if name.startswith("memory/"):
            client, _, key = name.removeprefix("memory/").partition("\n")
            memory.setdefault(client, {})[key] = tensor
    params, *sides = (
        Params(*(tensors[f"{place}/{vector}"] for vector in VECTORS), lengths=tuple(state["lengths"]))
        for place in ("params", *(f"sides/{side}" for side in state["sides"]))
    )
    diagnosis = {client: _verdict(verdict) for client, verdict in state["diagnosis"].items()}
    named = dict(zip(state["sides"], sides, strict=True))
    return Server(params, state["round"], diagnosis, state["weights"], state["left_out"], named), memory


def _tensors(place: str, params: Params) -> dict[str, Tensor]:
    return {f"{place}/{vector}": getattr(params, vector) for vector in VECTORS}


def _verdict(fields: Line) -> Verdict:
    """A verdict from its JSON, with those of combined methods inside it."""
    sides = {side: _verdict(own) for side, own in fields["sides"].items()}
    return Verdict(**{**fields, "sides": sides})


def save_final(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes the final weights under the model's own names."""
    write_whole(folder / FINAL, save(dict(tensors)))


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Writes a JSON file, indented for people."""
    write_whole(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    packages = ("fedpca", "torch", "numpy", "scikit-learn", "scipy")
    return {"python": sys.version.split()[0], **{package: version(package) for package in packages}}
