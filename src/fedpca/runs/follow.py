"""Reading along in a run's record while somebody else writes it; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedpca.runs.folder import ROUNDS, RoundLine, parse_rounds


@dataclass
class Follower:
    """Gives each round of a record once, also where a run is resumed, which cuts its record and writes it again."""

    folder: Path
    seen: int = 0  # the last round that was given
    read: int = 0  # bytes of the record

    def new_rounds(self) -> list[RoundLine]:
        """The rounds that the record has gained; none as long as there is none."""
        try:
            lines = self._new_lines()
        except ValueError:  # what stands here now begins in the middle of a line: the record was cut
            self.read = 0
            lines = self._new_lines()
        new = [line for line in lines if line["round"] > self.seen]
        self.seen = new[-1]["round"] if new else self.seen
        return new

    def _new_lines(self) -> list[RoundLine]:
        try:
            with (self.folder / ROUNDS).open("rb") as file:
                if file.seek(0, 2) < self.read:
                    self.read = 0
                file.seek(self.read)
                content = file.read()
        except FileNotFoundError:
            return []
        lines, size = parse_rounds(content)
        self.read += size
        return lines
