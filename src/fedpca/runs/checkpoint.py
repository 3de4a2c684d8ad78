"""The checkpoint of a run, which holds all that it needs to go on; that of a finished run lacks the final weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from fedpca.atomic import write_whole
from fedpca.core import ClientId, Params, Server, Verdict
from fedpca.errors import RunError
from fedpca.models.flat import Layout
from fedpca.runs.folder import CHECKPOINT, FINAL, RoundLine

Memory = dict[ClientId, dict[str, Tensor]]
FORMAT = 2  # of the file; that of fedpca 0.1 has no number
VERDICTS = TypeAdapter(dict[ClientId, Verdict])
PARAMS = ("params/weights", "params/buffers", "params/counters")
SMALL = 10_000_000  # bytes that a finished run keeps beside its final weights whatever their size


class Checkpoint(NamedTuple):
    """A run after a round."""

    server: Server
    memory: Memory  # of the clients
    untested: RoundLine | None = None  # the round's line, where it waits for the test of its model


def save_checkpoint(folder: Path, server: Server, memory: Memory, untested: RoundLine | None = None) -> None:
    """Writes all that the run needs to go on, in one file."""
    tensors = dict(zip(PARAMS, server.params.vectors, strict=True)) | _kept_tensors(server, memory)
    write_whole(folder / CHECKPOINT, save(tensors, _kept_state(server, untested)))


def save_rest(folder: Path, server: Server, memory: Memory, max_size: int | None) -> bool:
    """Writes what the run needs to go on besides its final weights, which are on the disk; not if that is too large."""
    tensors = _kept_tensors(server, memory)
    if max_size is not None and sum(tensor.nbytes for tensor in tensors.values()) > max(max_size, SMALL):
        return False
    write_whole(folder / CHECKPOINT, save(tensors, _kept_state(server)))
    return True


def _kept_state(server: Server, untested: RoundLine | None = None) -> dict[str, str]:
    state = {
        "format": FORMAT,
        "round": server.round,
        "diagnosis": {client: asdict(verdict) for client, verdict in server.diagnosis.items()},
        "weights": server.weights,
        "left_out": dict(server.left_out),
        "lengths": server.params.lengths,
        "untested": untested,
    }
    return {"server": json.dumps(state)}


def _kept_tensors(server: Server, memory: Memory) -> dict[str, Tensor]:
    tensors = {f"kept/{name}": vector.contiguous() for name, vector in server.memory.items()}
    tensors |= {f"shown/{name}": vector.contiguous() for name, vector in server.shown.items()}
    tensors |= {f"memory/{client}\n{key}": own[key].contiguous() for client, own in memory.items() for key in own}
    return tensors


def load_checkpoint(folder: Path, layout: Layout | None = None) -> Checkpoint:
    """The run as it was saved; a finished run needs the layout of its model, whose final weights lie under names."""
    state, tensors = _read(folder)
    memory: Memory = {}
    for name, tensor in tensors.items():
        if name.startswith("memory/"):
            client, _, key = name.removeprefix("memory/").partition("\n")
            memory.setdefault(client, {})[key] = tensor
    if tensors.keys() >= {*PARAMS}:
        params = Params(*(tensors[name] for name in PARAMS), lengths=tuple(state["lengths"]))
    else:
        params = _final_params(folder, layout)
    diagnosis = VERDICTS.validate_python(state["diagnosis"])
    rule = _under("kept/", tensors), _under("shown/", tensors)
    server = Server(params, state["round"], diagnosis, state["weights"], state["left_out"], *rule)
    return Checkpoint(server, memory, state.get("untested"))


def checkpoint_round(folder: Path) -> int | None:
    """The round after which a run was saved; None if it was not."""
    return int(_read(folder, with_tensors=False)[0]["round"]) if (folder / CHECKPOINT).exists() else None


def _read(folder: Path, with_tensors: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path = folder / CHECKPOINT
    try:
        with safe_open(path, "pt") as file:
            state = json.loads(file.metadata()["server"])
            tensors = {name: file.get_tensor(name) for name in (file.keys() if with_tensors else ())}
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise RunError(f"the checkpoint {path} cannot be read ({error}); delete {folder} and start again") from None
    if state.get("format") != FORMAT:
        raise RunError(
            f"the checkpoint {path} is of another version of fedpca, and weights may lie in another order there: go on "
            f"with that version, or delete {folder} and start again"
        )
    return state, tensors


def _final_params(folder: Path, layout: Layout | None) -> Params:
    path = folder / FINAL
    try:
        if layout is None:
            raise ValueError("the layout of its model is not known")
        return layout.params(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{folder} cannot go on from its final weights, {path}: {error}") from None


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file in one step."""
    write_whole(path, save(dict(tensors)))
