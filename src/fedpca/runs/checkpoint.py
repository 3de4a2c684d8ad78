"""The checkpoint of a run, which holds all that it needs to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedpca.atomic import write_whole
from fedpca.core import ClientId, Params, Server, Verdict
from fedpca.errors import RunError
from fedpca.runs.folder import CHECKPOINT, RoundLine

Memory = dict[ClientId, dict[str, Tensor]]
VECTORS = ("weights", "buffers", "counters")


class Checkpoint(NamedTuple):
    """A run after a round."""

    server: Server
    memory: Memory  # of the clients
    untested: RoundLine | None = None  # the round's line, where it waits for the test of its model


def save_checkpoint(folder: Path, server: Server, memory: Memory, untested: RoundLine | None = None) -> None:
    """Writes all that the run needs to go on, in one file."""
    state = {
        "round": server.round,
        "diagnosis": {client: asdict(verdict) for client, verdict in server.diagnosis.items()},
        "weights": server.weights,
        "left_out": dict(server.left_out),
        "sides": list(server.sides),
        "lengths": server.params.lengths,
        "untested": untested,
    }
    tensors = _tensors("params", server.params)
    for side, params in server.sides.items():
        tensors |= _tensors(f"sides/{side}", params)
    tensors |= {f"memory/{client}\n{key}": own[key].contiguous() for client, own in memory.items() for key in own}
    write_whole(folder / CHECKPOINT, save(tensors, {"server": json.dumps(state)}))


def load_checkpoint(folder: Path) -> Checkpoint:
    """The run as it was saved."""
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
    server = Server(params, state["round"], diagnosis, state["weights"], state["left_out"], named)
    return Checkpoint(server, memory, state.get("untested"))


def _tensors(place: str, params: Params) -> dict[str, Tensor]:
    return {f"{place}/{vector}": getattr(params, vector) for vector in VECTORS}


def _verdict(fields: dict[str, Any]) -> Verdict:
    """A verdict from its JSON, with those of combined methods inside it."""
    sides = {side: _verdict(own) for side, own in fields["sides"].items()}
    return Verdict(**{**fields, "sides": sides})


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file in one step."""
    write_whole(path, save(dict(tensors)))
