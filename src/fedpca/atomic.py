"""Files that are whole or not there."""

import os
from pathlib import Path
from typing import IO, Any


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes a file in one step: a reader, or a killed writer, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        to_disk(file)
    os.replace(partial, path)


def to_disk(file: IO[Any]) -> None:
    """Waits until what was written would outlive a power cut."""
    file.flush()
    os.fsync(file.fileno())
