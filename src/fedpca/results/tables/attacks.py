"""Tables of runs under attack: what each attack comes to with every method, and who was found and wrongly judged.

A terminal gets a line for each method and attack, pages a column for each attack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from fedpca.results.read.attacks import attack_name
from fedpca.results.read.metrics import metric_head
from fedpca.results.tables.rows import Results, Row, common_title, place, score_of
from fedpca.results.tables.sheet import Cell, Column, Line, Sheet
from fedpca.settings.attack import NONE

ABSENT = "-"
LINE = ("backdoor_success", "attackers_weight", "attackers_judged", "attackers_left_out", "innocents_judged")
SUCCESS = "marked images that are called the target, in percent"
FOUND = "the share of the attackers that is judged mislabeled / left out; honest clients with right labels so judged"
MEANS = "Means over the rounds of the attack and the seeds."


def under_attack(results: Results) -> bool:
    """Whether anybody attacks in any of these runs."""
    return any(row.attack for row in results.rows)


def attack_groups(tables: Sequence[Results]) -> list[list[Results]]:
    """Scenarios that differ in their attack (and name) alone, together, where anybody attacks in one of them."""
    alike: dict[str, list[Results]] = {}
    for results in tables:
        same = {**json.loads(results.scenario), "attack": None, "name": None}
        alike.setdefault(json.dumps(same), []).append(results)
    found = [scenarios for scenarios in alike.values() if any(map(under_attack, scenarios))]
    return [sorted(scenarios, key=lambda results: _name(results) != NONE) for scenarios in found]


def attack_lines(scenarios: Sequence[Results]) -> Sheet:
    """Every method under every attack, a line each."""
    scores = [score_of(name) for name in LINE]
    head = f"average {metric_head(scenarios[0].accuracy)}"
    columns = (Column(head, 1), *(Column(own.head, own.digits) for own in scores))
    lines = []
    for label, rows in _by_method(scenarios):
        for name, row in zip(attack_names(scenarios), rows, strict=True):
            if row:
                numbers = [_average(row), *(own.of(row) for own in scores)]
                cells = tuple(Cell(value) if isinstance(value, float) else None for value in numbers)
                lines.append(Line(label, name, cells, bool(row.unfinished)))
    explained = f"Backdoor: {SUCCESS}. Innocents judged: honest clients with right labels that are judged mislabeled."
    notes = (f"{explained} {MEANS}", *_notes(scenarios, lines))
    return Sheet(f"Under attack; {common_title(scenarios)}", columns, tuple(lines), notes, first="attack")


def attack_pages(scenarios: Sequence[Results]) -> list[Sheet]:
    """What the attacks come to, and who was found, if any method looks."""
    return [sheet for sheet in (gains_sheet(scenarios), found_sheet(scenarios)) if sheet.lines]


def gains_sheet(scenarios: Sequence[Results]) -> Sheet:
    """Accuracy, success of the backdoor and weight of the attackers, a column for each attack."""
    head = metric_head(scenarios[0].accuracy)
    explained = f"Average {head} in percent / {SUCCESS} / attackers' weight; {ABSENT}: no backdoor, or no weights."
    return _sheet("Under attack", scenarios, _gains, f"{explained} {MEANS}")


def found_sheet(scenarios: Sequence[Results]) -> Sheet:
    """Who was judged or left out, a column for each attack; no line for a method that did neither."""
    return _sheet("Found and wrongly judged under attack", scenarios, _found, f"Cells: {FOUND} (their number). {MEANS}")


def _sheet(what: str, scenarios: Sequence[Results], words: Callable[[Row], str | None], note: str) -> Sheet:
    lines = []
    for label, rows in _by_method(scenarios):
        cells = tuple(words(row) if row else None for row in rows)
        known = [row for row in rows if row]
        if any(cells):
            lines.append(Line(known[0].category, label, cells, any(row.unfinished for row in known)))
    columns = tuple(Column(name) for name in attack_names(scenarios))
    return Sheet(f"{what}; {common_title(scenarios)}", columns, tuple(lines), (note, *_notes(scenarios, lines)))


def _by_method(scenarios: Sequence[Results]) -> list[tuple[str, list[Row | None]]]:
    """Every method's row under each attack; None where there are no runs."""
    by_label = [{row.method: row for row in results.rows} for results in scenarios]
    rows = sorted({label: row for own in by_label for label, row in own.items()}.values(), key=place)
    return [(row.method, [own.get(row.method) for own in by_label]) for row in rows]


def attack_names(scenarios: Sequence[Results]) -> list[str]:
    """The attacks in a few words; with the settings in which they differ, where two are called alike."""
    names = [_name(results) for results in scenarios]
    if len(set(names)) == len(names):
        return names
    own = [{k: v for k, v in results.distinction.items() if k.startswith("attack.")} for results in scenarios]
    keys = [key for key in own[0] if key != "attack.kind" and len({repr(each[key]) for each in own}) > 1]
    told = [", ".join(f"{key.removeprefix('attack.')}={each[key]}" for key in keys) for each in own]
    return [f"{name} ({words})" if words else name for name, words in zip(names, told, strict=True)]


def _name(results: Results) -> str:
    return attack_name(results.settings.attack, results.settings.rounds)


def _average(row: Row) -> float:
    """The accuracy, which is the first of the metrics."""
    return next(iter(row.scores.values())).average.mean


def _gains(row: Row) -> str | None:
    own = row.attack
    success, weight = (_words(own.success, 0), _words(own.weight, 2)) if own else (ABSENT, ABSENT)
    return f"{_average(row):.1f} / {success} / {weight}"


def _found(row: Row) -> str | None:
    own = row.attack
    if not own or (own.judged is None and not own.left_out):
        return None
    return f"{_words(own.judged, 2)} / {own.left_out:.2f} / {_words(own.innocents_judged, 1)}"


def _words(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _notes(scenarios: Sequence[Results], lines: Sequence[Line]) -> Iterator[str]:
    """How many attack, over how many seeds, and which runs are not finished."""
    attackers = {row.attack.attackers for results in scenarios for row in results.rows if row.attack}
    seeds = {row.seeds for results in scenarios for row in results.rows}
    many, over = (" to ".join(map(str, sorted({min(own), max(own)}))) for own in (attackers, seeds))
    yield f"Attackers: {many} of {scenarios[0].clients} clients. Seeds: {over}."
    if any(line.unfinished for line in lines):
        yield "* has runs that are not finished."
