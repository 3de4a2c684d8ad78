"""Runs side by side: by method, as means over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fedpca.results.read.runs import Run, title
from fedpca.runs.folder import RoundLine
from fedpca.runs.scores import Headline, Spread, headline, spread

Floats = NDArray[np.float64]
Line = RoundLine
Methods = Mapping[str, Sequence[Run]]  # the runs of each method, by its name and changed settings


@dataclass(frozen=True)
class Curve:
    """A quantity over rounds: mean over the seeds that have it, and population deviation."""

    rounds: Floats
    mean: Floats
    std: Floats

    def late(self) -> list[float]:
        """The edges of the band in the second half of its rounds."""
        return self._edges(len(self.rounds) // 2)

    def whole(self) -> list[float]:
        """The edges of the band in all rounds."""
        return self._edges(0)

    def _edges(self, start: int) -> list[float]:
        return [*(self.mean - self.std)[start:].tolist(), *(self.mean + self.std)[start:].tolist()]

    def key(self) -> tuple[bytes, ...]:
        """The same for curves that are drawn on top of each other."""
        return tuple(values.round(9).tobytes() for values in (self.rounds, self.mean, self.std))


def by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The seeds of each method, methods in the catalogue's order."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.rank(), run.seed)):
        found.setdefault(run.label(), []).append(run)
    return found


def over_rounds(runs: Sequence[Run], value: Callable[[Sequence[Line]], Spread | None]) -> Curve:
    """The value of each round's lines of all seeds, where it has one."""
    lines: dict[int, list[Line]] = {}
    for run in runs:
        for line in run.rounds:
            lines.setdefault(line["round"], []).append(line)
    found = [(number, known) for number in sorted(lines) if (known := value(lines[number])) is not None]
    columns = np.array([(number, known.mean, known.std) for number, known in found], dtype=np.float64).reshape(-1, 3)
    return Curve(*columns.T)


def over_groups(lines: Sequence[Line], metric: str, which: str) -> Spread | None:
    """Worst or average of a metric in one round in percent, as the tables define them; None if it was not tested."""
    tested = [groups for line in lines if (groups := line.get("groups"))]
    if not tested:
        return None
    found: Spread = getattr(headline({g: [100 * groups[g][metric] for groups in tested] for g in tested[0]}), which)
    return found


def final(runs: Sequence[Run]) -> Headline:
    """Worst and average accuracy in percent over seeds, of each seed the mean over its last tested rounds."""
    last = [run.last() for run in runs]
    return headline({group: [100 * fmean(values[group]) for values in last] for group in last[0]})


def weight(lines: Sequence[Line], group: str) -> Spread | None:
    """What the clients of a group weigh together; None for rules without weights."""
    known = [weights[group] for line in lines if (weights := line.get("weights"))]
    return spread(known) if known else None


def scenario(runs: Sequence[Run]) -> str:
    """What the runs work on, in one sentence."""
    return f"{title(runs)}."


def seeds(methods: Methods, shown: str = "line and band") -> str:
    """What line and band are, over how many seeds, and whether all have come to their end."""
    counts = sorted({len(own) for own in methods.values()})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    text = f"{shown[0].upper()}{shown[1:]}: mean ± standard deviation over {number} seeds."
    if counts == [1]:
        text = "One seed."
    unfinished = ", ".join(label for label, own in methods.items() if not all(run.is_done for run in own))
    return text + (f" Under way, so over fewer seeds or rounds: {unfinished}." if unfinished else "")
