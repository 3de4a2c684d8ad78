"""The claims as a table, and every comparison as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from fedpca.results.claims.check import Checked, Comparison
from fedpca.results.tables.rows import OTHERS, score_of
from fedpca.results.tables.sheet import Column, Line, Sheet

COLUMNS = (Column("verdict"), Column("what the paper says"), Column("here"), Column("in the paper"))
HEADS = (
    *("claim", "topic", "says", "verdict", "scenario", "comparison", "score", "ours"),
    *("deviation", "low", "high", "seeds", "paper", "holds"),
)
NOTES = (
    "Holds: in every comparison that these runs allow; in part: in some; does not: in none.",
    "Here: how many comparisons hold, how many of all are within the deviation over the seeds, and the numbers, in "
    "percentage points but for weights, loss, dispersion and F1.",
)


def claims_sheet(checked: Sequence[Checked]) -> Sheet:
    """A line for each claim."""
    lines = tuple(
        Line(
            one.claim.topic,
            one.claim.number,
            (one.verdict, one.claim.says, _here(one), _in_paper(one)),
            unfinished=False,
        )
        for one in checked
    )
    scenarios = dict.fromkeys(comparison.scenario for one in checked for comparison in one.comparisons)
    listed = "Scenarios: " + " | ".join(scenarios) + "." if scenarios else "No scenario says anything of any claim."
    return Sheet("The paper's claims on these runs", COLUMNS, lines, (*NOTES, listed), first="claim")


def _here(checked: Checked) -> str:
    """How many comparisons hold, and the numbers; why there are none."""
    own = checked.comparisons
    if not own:
        return checked.reason
    unclear = sum(c.ours.std is not None and abs(c.ours.mean) <= c.ours.std for c in own)
    within = f", {unclear} within the deviation" if unclear and checked.claim.kind != "std" else ""
    single = "; one seed" if all(c.ours.seeds == 1 for c in own) else ""
    return f"{sum(c.holds for c in own)} of {len(own)}{within}{single}; {_numbers(own)}"


def _in_paper(checked: Checked) -> str:
    """What the paper has for it, and for the very same comparisons."""
    same = [c for c in checked.comparisons if c.paper is not None]
    same_words = f"; for the same: {_numbers(same, of_paper=True)}" if same and checked.claim.kind != "found" else ""
    return f"{checked.claim.paper}{same_words}"


def _numbers(comparisons: Sequence[Comparison], of_paper: bool = False) -> str:
    """The range of each score's numbers."""
    by_score: dict[str, list[float]] = {}
    for one in comparisons:
        number = one.paper if of_paper else one.ours.mean
        if number is not None:
            by_score.setdefault(one.score, []).append(number)
    return ", ".join(f"{_head(score)} {_range(own, score)}" for score, own in by_score.items())


def _head(score: str) -> str:
    known = score in OTHERS or score.partition("_")[0] in ("worst", "average", "std")
    return score_of(score).head if known else score.replace("_", " ")


def _range(values: Sequence[float], score: str) -> str:
    """From the lowest to the highest, with their signs where they are differences."""
    digits = 2 if score.partition("_")[0] in ("worst", "average", "std", "loss", "dispersion", "F1") else 4
    ends = [f"{value:+.{digits}f}" for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def as_csv(checked: Sequence[Checked]) -> str:
    """A line for each comparison, in full precision; one for a claim that has none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADS)
    for one in checked:
        claim = (one.claim.number, one.claim.topic, one.claim.says, one.verdict)
        writer.writerows((*claim, *cells) for cells in _cells(one))
    return out.getvalue()


def _cells(checked: Checked) -> Iterator[tuple[object, ...]]:
    if not checked.comparisons:
        yield (None, checked.reason, *[None] * 8)
    for one in checked.comparisons:
        gain = (one.ours.mean, one.ours.std, one.ours.low, one.ours.high, one.ours.seeds)
        yield (one.scenario, one.what, one.score, *gain, one.paper, one.holds)
