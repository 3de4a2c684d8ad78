"""One of several parts of an experiment's runs, which machines without anything in common but a disk play."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from fedpca.errors import UserError

Run = TypeVar("Run")


class Part(NamedTuple):
    """One of so many `parts`: every N-th run of all, beginning with run `number`, counted from 1.

    >>> [Part(number, 3).of("abcdefgh") for number in (1, 2, 3)]
    [['a', 'd', 'g'], ['b', 'e', 'h'], ['c', 'f']]
    """

    number: int
    parts: int

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"

    def of(self, runs: Sequence[Run]) -> list[Run]:
        """The part's own runs, of all."""
        return list(runs[self.number - 1 :: self.parts])


WHOLE = Part(1, 1)


def read_part(text: str) -> Part:
    """What `--part I/N` asks for.

    >>> read_part("2/8")
    Part(number=2, parts=8)
    """
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    part = Part(*map(int, found.groups())) if found else Part(0, 0)
    if not 1 <= part.number <= part.parts:
        raise UserError(
            f"--part must be I/N with I from 1 to N, such as 2/8, got {text!r} (a Slurm array from 1 to N, "
            "`sbatch --array=1-8`, gives I as $SLURM_ARRAY_TASK_ID)"
        )
    return part
