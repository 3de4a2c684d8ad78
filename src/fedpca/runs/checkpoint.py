"""The checkpoint of a run, which holds all that it needs to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedpca.atomic import write_whole
from fedpca.core import ClientId, Params, Server, Verdict
from fedpca.errors import RunError
from fedpca.runs.folder import CHECKPOINT, RoundLine

Memory = dict[ClientId, dict[str, Tensor]]
FORMAT = 2  # of the file; that of fedpca 0.1 has no number
VERDICTS = TypeAdapter(dict[ClientId, Verdict])
PARAMS = ("params/weights", "params/buffers", "params/counters")


class Checkpoint(NamedTuple):
    """A run after a round."""

    server: Server
    memory: Memory  # of the clients
    untested: RoundLine | None = None  # the round's line, where it waits for the test of its model


def save_checkpoint(folder: Path, server: Server, memory: Memory, untested: RoundLine | None = None) -> None:
    """Writes all that the run needs to go on, in one file."""
    state = {
        "format": FORMAT,
        "round": server.round,
        "diagnosis": {client: asdict(verdict) for client, verdict in server.diagnosis.items()},
        "weights": server.weights,
        "left_out": dict(server.left_out),
        "lengths": server.params.lengths,
        "untested": untested,
    }
    tensors = dict(zip(PARAMS, server.params.vectors, strict=True))
    tensors |= {f"kept/{name}": vector.contiguous() for name, vector in server.memory.items()}
    tensors |= {f"shown/{name}": vector.contiguous() for name, vector in server.shown.items()}
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
    if state.get("format") != FORMAT:
        raise RunError(
            f"the checkpoint {path} is of another version of fedpca, and weights may lie in another order there: go on "
            f"with that version, or delete {folder} and start again"
        )
    params = Params(*(tensors[name] for name in PARAMS), lengths=tuple(state["lengths"]))
    diagnosis = VERDICTS.validate_python(state["diagnosis"])
    rule = _under("kept/", tensors), _under("shown/", tensors)
    server = Server(params, state["round"], diagnosis, state["weights"], state["left_out"], *rule)
    return Checkpoint(server, memory, state.get("untested"))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file in one step."""
    write_whole(path, save(dict(tensors)))
