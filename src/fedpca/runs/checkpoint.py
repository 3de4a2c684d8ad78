"""The checkpoint of a run, which holds all that it needs to go on; that of a finished run lacks the final weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, uint8

from fedpca.atomic import keep_copy, write_whole
from fedpca.core import ClientId, Params, Server, Verdict
from fedpca.errors import RunError
from fedpca.models.flat import Layout
from fedpca.runs.folder import CHECKPOINT, FINAL, PREVIOUS, RoundLine

Memory = dict[ClientId, dict[str, Tensor]]
FORMAT = 3  # of the file; that of fedpca 0.1 has no number
UNSUMMED = 2  # the format before, which has no checksum
SUM = "sha256"  # in a file's metadata: of its tensors and of all else
VERDICTS = TypeAdapter(dict[ClientId, Verdict])
PARAMS = ("params/weights", "params/buffers", "params/counters")
SMALL = 10_000_000  # bytes that a finished run keeps beside its final weights whatever their size


class DamagedError(RunError):
    """A file of a run folder that is not as it was written."""


class Checkpoint(NamedTuple):
    """A run after a round."""

    server: Server
    memory: Memory  # of the clients
    untested: RoundLine | None = None  # the round's line, where it waits for the test of its model


def save_checkpoint(
    folder: Path, server: Server, memory: Memory, untested: RoundLine | None = None, keep_last: bool = True
) -> None:
    """Writes all that the run needs to go on, in one file; the last one is kept beside it."""
    tensors = dict(zip(PARAMS, server.params.vectors, strict=True)) | _kept_tensors(server, memory)
    if keep_last:
        keep_copy(folder / CHECKPOINT, folder / PREVIOUS)
    _write(folder / CHECKPOINT, tensors, _kept_state(server, untested))


def go_back(folder: Path) -> bool:
    """Puts the checkpoint before the last in its place; False if there is none."""
    if not (folder / PREVIOUS).exists():
        return False
    (folder / PREVIOUS).replace(folder / CHECKPOINT)
    return True


def save_rest(folder: Path, server: Server, memory: Memory, max_size: int | None) -> bool:
    """Writes what the run needs to go on besides its final weights, which are on the disk; not if that is too large."""
    tensors = _kept_tensors(server, memory)
    if max_size is not None and sum(tensor.nbytes for tensor in tensors.values()) > max(max_size, SMALL):
        return False
    _write(folder / CHECKPOINT, tensors, _kept_state(server))
    (folder / PREVIOUS).unlink(missing_ok=True)  # of a run that is finished nobody needs it
    return True


def _kept_state(server: Server, untested: RoundLine | None = None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "round": server.round,
        "diagnosis": {client: asdict(verdict) for client, verdict in server.diagnosis.items()},
        "weights": server.weights,
        "left_out": dict(server.left_out),
        "lengths": server.params.lengths,
        "untested": untested,
        **({"shown_to": server.shown_to} if server.shown_to else {}),
    }


def _write(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Writes a checkpoint; all that is no tensor is one text, since several would lie in an order by chance."""
    summed = {**state, SUM: checksum(tensors, _same_text(state))}
    write_whole(path, save(_apart(tensors), {"server": json.dumps(summed)}))


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, none in the memory of another, which files do not have: a client and the server may share one.

    A simulated client that keeps the state which it sent, where the server keeps it too, has the very same tensor.
    """
    taken: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if place in taken and tensor.numel() else tensor
        taken.add(place)
    return apart


def _same_text(state: Mapping[str, Any]) -> str:
    """One text for equal states: a run that goes on may have noted numbers in another order, and 3.0 in place of 3."""
    return json.dumps(json.loads(json.dumps(state), parse_int=float), sort_keys=True)


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
    rule = _under("kept/", tensors), _under("shown/", tensors), state.get("shown_to", {})
    server = Server(params, state["round"], diagnosis, state["weights"], state["left_out"], *rule)
    return Checkpoint(server, memory, state.get("untested"))


def checkpoint_round(folder: Path) -> int | None:
    """The round after which a run was saved; None if it was not."""
    return int(_read(folder, with_tensors=False)[0]["round"]) if (folder / CHECKPOINT).exists() else None


def _read(folder: Path, with_tensors: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path = folder / CHECKPOINT
    remedy = f"delete {folder} and start again"
    try:
        with safe_open(path, "pt") as file:
            state = dict(json.loads(file.metadata()["server"]))
            tensors = {name: file.get_tensor(name) for name in (file.keys() if with_tensors else ())}
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise DamagedError(f"the checkpoint {path} cannot be read ({error}); {remedy}") from None
    found, number = state.pop(SUM, None), state.get("format")
    if with_tensors and (found or number == FORMAT) and found != checksum(tensors, _same_text(state)):
        raise DamagedError(f"the checkpoint {path} is damaged, its checksum is another one; {remedy}")
    if number not in (FORMAT, UNSUMMED):
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
        return layout.params(load_tensors(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{folder} cannot go on from its final weights, {path}: {error}") from None


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file in one step, with a checksum."""
    write_whole(path, save(dict(tensors), {SUM: checksum(tensors)}))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of such a file; one whose checksum is another is refused."""
    with safe_open(path, "pt") as file:
        found = (file.metadata() or {}).get(SUM)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if found is not None and found != checksum(tensors):
        raise DamagedError(f"{path} is damaged, its checksum is another one: play the run again")
    return tensors


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """A digest of a text, and of the names, types, shapes and bytes of tensors."""
    digest = sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        digest.update(f"{name!r} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()
