"""Files that are whole or not there, and folders that one process writes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EACCES, EAGAIN
from pathlib import Path
from typing import IO, Any

from fedpca.errors import RunError

HELD = (EACCES, EAGAIN)  # what the system says of a lock that another process has


class LockedError(RunError):
    """A folder that another process writes."""


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes a file in one step: a reader, or a killed writer, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            to_disk(file)
    except OSError:  # a disk that is full: what was written is in the way of others
        partial.unlink(missing_ok=True)
        raise
    os.replace(partial, path)


def keep_copy(path: Path, copy: Path) -> None:
    """Keeps a file under another name too, in one step, before another takes its place; nothing if it is not there."""
    if not path.exists():
        return
    partial = copy.with_name(copy.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(path, partial)
    except OSError:  # a file system without links
        shutil.copyfile(path, partial)
    os.replace(partial, copy)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Writes a JSON file in one step, indented for people."""
    write_whole(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def private_folder(path: Path) -> None:
    """Makes a folder that its owner alone can look into, or makes one so that is there."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def to_disk(file: IO[Any]) -> None:
    """Waits until what was written would outlive a power cut."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def locked(folder: Path, refusal: str) -> Iterator[None]:
    """Keeps a second process out of a folder, with this message; the lock ends with its process."""
    with _lock_file(folder) as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise (LockedError(refusal) if error.errno in HELD else _no_locks(folder, error)) from None
        yield


def _no_locks(folder: Path, error: OSError) -> RunError:
    return RunError(
        f"the file system of {folder} cannot lock files ({error.strerror}), so two processes might write one folder: "
        "choose a folder on another disk, or have it mounted with locks (NFS without nolock, Lustre with flock)"
    )


def _lock_file(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / ".lock").open("w")
    except OSError as error:
        raise RunError(f"the folder {folder} cannot be made or written ({error.strerror}): choose another") from None
