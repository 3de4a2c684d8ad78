"""What a method chose by itself, read from the record."""

from __future__ import annotations

from dataclasses import dataclass

from fedpca.results.read.runs import Run

NEAR = 1.3  # a value within this factor of the present one is the same choice: it is found by small steps


@dataclass(frozen=True)
class Chosen:
    """One choice as it stands after the last round."""

    what: str
    value: float
    text: str
    since: int  # the round from which on it has been about the same


def choices_of(run: Run) -> list[Chosen]:
    """The present choices; none for methods that make none."""
    present = run.rounds[-1].get("choices") or [] if run.rounds else []
    return [Chosen(own["what"], own["value"], own["text"], _since(run, own["what"], own["value"])) for own in present]


def values_of(run: Run, what: str) -> dict[int, float]:
    """One choice over the rounds that have it."""
    lines = ((line["round"], line.get("choices") or []) for line in run.rounds)
    return {number: own["value"] for number, made in lines for own in made if own["what"] == what}


def _since(run: Run, what: str, value: float) -> int:
    since = run.rounds[-1]["round"]
    for number, earlier in reversed(values_of(run, what).items()):
        if not _alike(earlier, value):
            break
        since = number
    return since


def _alike(one: float, two: float) -> bool:
    low, high = sorted((one, two))
    return low == high or (low > 0 and high / low < NEAR)
