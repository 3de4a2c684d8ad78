"""The table of test groups: images, accuracy and its interval in each; what suspect test labels change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedpca.results.read.groups import KINDS, GroupScore
from fedpca.results.read.metrics import metric_head
from fedpca.results.tables.rows import Results, Row
from fedpca.results.tables.sheet import Cell, Column, Line, Sheet

MAX_NAMED = 5  # test groups that a note names
MAX_LINES = 40  # that a terminal shows
MAX_CLASSES = 4  # whose images are listed; of more, the smallest class is named
INTERVAL = "The interval is Wilson's for so many images, if drawn at random; it knows nothing of seeds and training."


def group_sheets(tables: Sequence[Results], max_lines: int | None = None) -> list[Sheet]:
    """A table for each scenario whose test groups are clients, sites or the values of a column."""
    return [group_sheet(results, max_lines) for results in tables if not KINDS.issuperset(results.groups)]


def group_sheet(results: Results, max_lines: int | None = None) -> Sheet:
    """Every method's score in each test group; one that would be longer is what its notes say."""
    head = metric_head(results.accuracy)
    columns = (
        Column("images", 0),
        Column(support_head(results.classes), narrow=False),
        Column(head, 2),
        Column("95 % interval"),
    )
    lines = [_line(results, row, group) for row in results.rows for group in row.groups.groups]
    notes = [*_notes(results, head)]
    if max_lines is not None and len(lines) > max_lines:
        lines, notes = [], [f"{len(lines)} scores: --groups, --markdown and --json have them.", *notes]
    return Sheet(f"Test groups; {results.title}", columns, tuple(lines), tuple(notes), first="test group")


def _line(results: Results, row: Row, group: GroupScore) -> Line:
    images = None if group.images is None else Cell(group.images)
    interval = None if group.low is None or group.high is None else f"{group.low:.1f} to {group.high:.1f}"
    name = group.group + " (suspect)" * group.suspect
    cells = (images, support(group, results.classes), Cell(group.score), interval)
    return Line(row.method, name, cells, bool(row.unfinished))


def support_head(classes: Sequence[str]) -> str:
    """What stands above `support`."""
    return "smallest class" if len(classes) > MAX_CLASSES else "of each class"


def support(group: GroupScore, classes: Sequence[str]) -> str | None:
    """A test group's images of each class or, where there are many classes, of the smallest; None if not known."""
    if not group.classes or not classes:
        return None
    named = [*zip(classes, group.classes, strict=False)]
    shown = [min(named, key=lambda pair: pair[1])] if len(classes) > MAX_CLASSES else named
    return ", ".join(f"{name}: {count}" for name, count in shown)


def _notes(results: Results, head: str) -> Iterator[str]:
    yield "Percent; mean over the last tested rounds of every seed."
    if any(group.low is not None for row in results.rows for group in row.groups.groups):
        yield INTERVAL
    for row in results.rows:
        yield from _suspects(row, head)
    yield from uncounted_words(results.uncounted)


def uncounted_words(uncounted: Mapping[str, str]) -> Iterator[str]:
    """Which test groups are too small to count, and why; nothing if there are none."""
    if uncounted:
        listed = "; ".join(f"{group} ({why})" for group, why in uncounted.items())
        yield f"Too small to count, and so not in worst and average: {listed}."


def _suspects(row: Row, head: str) -> Iterator[str]:
    """What a method's judgement says of the test labels, and of worst and average."""
    scores = row.groups
    if not scores.suspects:
        return
    yield f"{row.method} judges {listed_groups(scores.suspects)} mislabeled: test labels there are suspect."
    if scores.worst_without is not None and scores.average_without is not None:
        without = f"worst {head} {scores.worst_without:.2f}, average {scores.average_without:.2f}"
        yield f"Without: {without}; with: {scores.worst:.2f} and {scores.average:.2f}."


def listed_groups(names: Sequence[str]) -> str:
    """Test groups in a sentence: their names, or how many there are."""
    if len(names) > MAX_NAMED:
        return f"{len(names)} of them"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
