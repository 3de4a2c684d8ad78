"""Folders that are there whole or not at all, whoever else writes them and whatever fails."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_DAY = 86_400  # seconds after which an unfinished folder is a dead process' leftover


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` in one step at the end, or vanishes if anything fails.

    Where another process was quicker its folder stays, and ours vanishes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target.parent)
    folder = _hidden_name(target)
    folder.mkdir()
    try:
        yield folder
        _move_into_place(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def discard(folder: Path) -> None:
    """Takes a folder away in one step, so that nobody finds half of it."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder.rename(_hidden_name(folder)), ignore_errors=True)


def _move_into_place(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not target.exists():
            raise


def _hidden_name(folder: Path) -> Path:
    """An unused name beside a folder, hidden."""
    return folder.with_name(f".{folder.name}.{uuid4().hex}.tmp")


def _remove_leftovers(folder: Path) -> None:
    """Removes what killed processes left behind."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _DAY:
                shutil.rmtree(path, ignore_errors=True)
