"""What a site remembers between messages, on its own disk: each message is a new process there.

STORE/identity                     tells this site from another of the same name
STORE/RUN/ROUND-HALF.safetensors   the client's memory after that half of a round: 0 its report, 1 its training

A server that goes on from a checkpoint asks for a round again. So a memory is read as it was before the half that is
asked for, and only what no round can need any more is removed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedpca.atomic import private_folder, write_whole
from fedpca.errors import RunError

HALVES = {"report": 0, "train": 1}


def identity(store: Path) -> str:
    """A word that only this site's store has, drawn when it is first asked for."""
    private_folder(store)
    path = store / "identity"
    if not path.exists():
        write_whole(path, secrets.token_hex(16))
    return path.read_text(encoding="utf-8")


def recall(store: Path, run: str, round: int, half: str) -> dict[str, Tensor]:
    """The client's memory as it was before a half of a round."""
    earlier = [path for path in _saved(store / run) if path.name < _name(round, half)]
    if not earlier:
        return {}
    try:
        return load_file(earlier[-1])
    except (SafetensorError, OSError) as error:
        raise RunError(f"what this site remembers cannot be read from {earlier[-1]} ({error}): remove it") from None


def remember(store: Path, run: str, round: int, half: str, memory: Mapping[str, Tensor]) -> None:
    """Keeps the memory after a half of a round, and what this round and the one before began with.

    A server whose last checkpoint is damaged goes on from the one before.
    """
    folder = store / run
    if not memory and not folder.exists():
        return
    write_whole(folder / _name(round, half), save({key: value.contiguous() for key, value in memory.items()}))
    before = [path for path in _saved(folder) if path.name < _name(round - 1, "report")]
    for path in before[:-1]:
        path.unlink(missing_ok=True)


def _name(round: int, half: str) -> str:
    return f"{round:06d}-{HALVES[half]}.safetensors"


def _saved(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))
