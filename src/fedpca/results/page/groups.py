"""The test groups of one run as HTML: a row each, with its score as a bar, the interval, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from fedpca.results.page.words import enumeration, non_breaking, plural
from fedpca.results.read.groups import GroupScore, GroupScores, group_scores, uncounted_groups
from fedpca.results.read.metrics import metric_head, metric_words
from fedpca.results.read.runs import Run
from fedpca.results.tables.groups import INTERVAL, support, support_head, uncounted_words

MAX_ROWS = 12  # from which on the table scrolls in a frame of its own
MAX_NAMES = 5  # test groups that a sentence names
COLOURS = {"common": "c", "rare": "r"}  # groups of a scenario have the colours of its clients


@dataclass(frozen=True)
class Column:
    """One column of the table: its head, and the HTML of a group's cell; None where nothing is known."""

    head: str
    cell: Callable[[GroupScore], str | None]
    is_number: bool = True


def group_section(run: Run, number: int, hidden: bool) -> str:
    """The part of the page for one run; nothing where no round is tested, or a lone group has no number of images."""
    if not run.last():
        return ""
    scores = group_scores([run])
    if len(scores.groups) == 1 and scores.groups[0].images is None:
        return ""
    said = "".join(f'<p class="verdict">{non_breaking(text)}</p>' for text in _sentences(run, scores))
    notes = " ".join(_notes(run, scores))
    return (
        f'<div data-run="{number}"{" hidden" * hidden}><p class="note">{non_breaking(_what(run))}</p>{said}'
        f'{_table(run, scores)}<p class="note">{non_breaking(notes)}</p></div>'
    )


def _what(run: Run) -> str:
    tested = len(next(iter(run.last().values())))
    rounds = "in the last tested round" if tested == 1 else f"mean over the last {tested} tested rounds"
    return f"{run.label()}, seed {run.seed}: {metric_words(run.accuracy)} in percent, {rounds}"


def _sentences(run: Run, scores: GroupScores) -> Iterator[str]:
    """Worst and average, with and without the groups whose labels are suspect; one group has neither."""
    if len(scores.groups) > 1:
        worst = f"worst {scores.worst:.1f} % ({scores.worst_group})"
        yield f"Of {len(scores.groups)} groups: {worst}, average {scores.average:.1f} %."
    names = enumeration(scores.suspects, MAX_NAMES)
    if scores.worst_without is not None and scores.average_without is not None:
        worst = f"worst {scores.worst_without:.1f} % ({scores.worst_group_without})"
        average = f"average {scores.average_without:.1f} %"
        yield f"Without {names}, whose test labels are suspect: {worst}, {average}."
    elif scores.suspects:
        yield f"The test labels of {names} are suspect, and no other group is tested."


def _notes(run: Run, scores: GroupScores) -> Iterator[str]:
    if scores.suspects:
        client = plural(scores.suspects, "this client", "these clients")
        yield f"Suspect: {run.label()} judges {client} mislabeled, and nobody knows which test labels are right."
        yield "A low score there may be the fault of the labels."
    if len(scores.groups) > 1:
        yield "The line across the bars is the average."
    if any(group.low is not None for group in scores.groups):
        yield INTERVAL
    yield from uncounted_words(uncounted_groups([run]))


def _table(run: Run, scores: GroupScores) -> str:
    """The groups from worst to best; columns without any value are left out."""
    columns = [column for column in _columns(run, scores) if any(map(column.cell, scores.groups))]
    heads = "".join(f'<th scope="col"{_class(column)}>{escape(column.head)}</th>' for column in columns)
    rows = "".join(_row(scores, group, columns) for group in sorted(scores.groups, key=lambda group: group.score))
    name = escape(f"Test groups, {run.label()}, seed {run.seed}")
    tall = " tall" * (len(scores.groups) > MAX_ROWS)
    return (
        f'<div class="scroll{tall}" role="region" aria-label="{name}" tabindex="0"><table aria-label="{name}">'
        f'<thead><tr><th scope="col">test group</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _columns(run: Run, scores: GroupScores) -> Sequence[Column]:
    classes = run.about.get("classes", [])
    average = scores.average if len(scores.groups) > 1 else None
    return (
        Column(metric_head(run.accuracy), lambda group: _bar(group, average) + f"{group.score:.1f}"),
        Column("95 % interval", _interval),
        Column("images", lambda group: None if group.images is None else str(group.images)),
        Column(support_head(classes), lambda group: escape(support(group, classes) or ""), is_number=False),
    )


def _row(scores: GroupScores, group: GroupScore, columns: Sequence[Column]) -> str:
    is_worst = len(scores.groups) > 1 and group.score == scores.worst
    tags = [tag for tag, applies in (("worst", is_worst), ("suspect", group.suspect)) if applies]
    name = escape(group.group) + "".join(f' <span class="tag">{tag}</span>' for tag in tags)
    cells = "".join(f"<td{_class(column)}>{column.cell(group) or '–'}</td>" for column in columns)
    return f'<tr><th scope="row">{name}</th>{cells}</tr>'


def _class(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def _interval(group: GroupScore) -> str | None:
    return None if group.low is None or group.high is None else f"{group.low:.1f}–{group.high:.1f}"


def _bar(group: GroupScore, average: float | None) -> str:
    """The score as a bar from 0 to 100, its interval as a line over the end, the average of all groups across it."""
    kind = "m" if group.suspect else COLOURS.get(group.group, "-")
    marks = "" if average is None else f'<path class="average" d="M{average:.1f},0V14"/>'
    if group.low is not None and group.high is not None:
        low, high = f"{group.low:.1f}", f"{group.high:.1f}"
        marks += f'<path class="interval" d="M{low},4V10M{high},4V10M{low},7H{high}"/>'
    return (
        '<svg class="share" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" y="2" width="100" height="10"/>'
        f'<rect class="fill" data-kind="{kind}" y="2" width="{group.score:.1f}" height="10"/>{marks}</svg>'
    )
