"""A run folder that grows, read as it does."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from fedpca.errors import RunError
from fedpca.results.read.runs import Run, read_run, require_round
from fedpca.runs.folder import ROUNDS, parse_rounds


class Tail:
    """One run folder; each reading reads only what was appended since the last."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ROUNDS
        self.file = -1  # which file was read, since a resumed run puts another in its place
        self.offset = 0  # bytes read, whole lines

    def read(self) -> Run:
        """The run as it is now, without a line that is still being written."""
        with self.path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self.file or found.st_size < self.offset:
                self.run = replace(read_run(self.path.parent), rounds=())
                self.file, self.offset = found.st_ino, 0
            file.seek(self.offset)
            content = file.read()
        try:
            lines, size = parse_rounds(content)
        except ValueError as error:
            raise RunError(f"the run folder {self.path.parent} cannot be read: {error}") from None
        for line in lines:
            require_round(self.path.parent, line)
        if lines:
            self.run = replace(self.run, rounds=[*self.run.rounds, *lines])
            self.offset += size
        return self.run

    def idle_seconds(self) -> float:
        """How long ago something was written."""
        return max(0.0, time.time() - self.path.stat().st_mtime)
