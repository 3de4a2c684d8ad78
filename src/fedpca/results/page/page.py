"""Results as one HTML file: everything in it, nothing fetched, readable without scripts but for the drawings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from fedpca.results.page.data import key, run_data
from fedpca.results.page.frame import asset, fill
from fedpca.results.page.groups import group_section
from fedpca.results.page.summary import Note, comparison, notes
from fedpca.results.page.verdict import verdict
from fedpca.results.page.words import non_breaking, quantity
from fedpca.results.read.runs import Run, by_scenario, distinction_words, name_of
from fedpca.results.tables.rows import tabulate
from fedpca.results.tables.sheet import Cell, Sheet
from fedpca.results.tables.sheets import overview
from fedpca.settings.toml import write_table

MAX_PLAIN_ROWS = 8  # methods up to which a table needs no headings inside
SCRIPTS = ("theme.js", "draw.js", "charts.js", "plane.js", "sheet.js", "page.js")


def write_page(runs: Sequence[Run], live: bool = False) -> str:
    """The whole page; `live` adds what asks a local server for new rounds."""
    runs = in_order(runs)
    return fill(
        asset("page.html"),
        style(),
        "\n".join(map(asset, (*SCRIPTS, "live.js") if live else SCRIPTS)),
        served=live,
        title=escape(_title(runs)),
        scene=escape(_scene(runs)),
        not_live="" if live else " hidden",
        **parts(runs),
        settings="".join(_settings(run, i, hidden=i != first(runs)) for i, run in enumerate(runs)),
        data=_json(runs),
    )


def waiting_page(folder: Path) -> str:
    """What is shown until there is a round to show; it reloads itself."""
    return fill(asset("waiting.html"), style(), folder=escape(str(folder)))


def style() -> str:
    """The style of all pages, and what the page of runs adds to it."""
    return asset("base.css") + asset("page.css")


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Scenario by scenario, methods in the catalogue's order, seeds rising."""
    return [run for members in by_scenario(runs) for run in sorted(members, key=lambda run: (run.rank(), run.seed))]


def first(runs: Sequence[Run]) -> int:
    """The run that is shown first: one that asks whether anybody is mislabeled at all (`auto`), where there is one.

    Of several, or if there is none, one under way, else one with judged clients on the plane, else the first.
    """

    def rank(number: int) -> tuple[bool, bool, bool]:
        run = runs[number]
        last, rule = run.rounds[-1]["clients"], run.identify
        judges = all(last.get(name) for name in ("loss", "dispersion", "group"))
        return rule is None or rule.rule != "auto", run.is_done, not judges

    return min(range(len(runs)), key=rank)


def parts(runs: Sequence[Run]) -> dict[str, str]:
    """What changes while runs go on, as HTML: the summary of each run, and the tables."""
    tested = [run for run in runs if run.last()]
    tables = tabulate(tested)
    seeds = Counter((run.scenario(), run.label()) for run in runs)
    shown = first(runs)
    summaries = [_summary(run, seeds[run.scenario(), run.label()], i, hidden=i != shown) for i, run in enumerate(runs)]
    across = [comparison(table, own) for table, own in zip(tables, by_scenario(tested), strict=True)]
    return {
        "summaries": "".join(summaries) + "".join(f'<dl class="notes across">{_notes(n)}</dl>' for n in across if n),
        "tables": "".join(_table(overview(table)) for table in tables) or "<p>No round has been tested.</p>",
        "groups": "".join(group_section(run, i, hidden=i != shown) for i, run in enumerate(runs)),
    }


def _json(runs: Sequence[Run]) -> str:
    """The data for the script; `<` is written so that no text in it can end its element."""
    scenarios = by_scenario(runs)
    number = {id(run): i for i, members in enumerate(scenarios) for run in members}
    content = {
        "runs": [run_data(run, number[id(run)]) for run in runs],
        "scenarios": [
            f"{name_of(members)}: {_scene(members)}{distinction_words(members[0].distinction())}"
            for members in scenarios
        ],
        "first": first(runs),
        "key": key(runs),
    }
    return json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")


def _title(runs: Sequence[Run]) -> str:
    return ", ".join(dict.fromkeys(run.settings.name for run in runs))


def _scene(runs: Sequence[Run]) -> str:
    """What the runs work on, in one line."""
    run = runs[0]
    methods, seeds = {run.label() for run in runs}, {run.seed for run in runs}
    truth = [f"{len(run.about[kind])} {kind}" for kind in ("rare", "mislabeled") if run.about.get(kind)]
    clients = quantity(len(run.about["clients"]["id"]), "client")
    among = (f" ({', '.join(truth)})" if truth else "") + run.truth_words()
    played = (
        f"{quantity(run.settings.rounds, 'round')}, {quantity(len(methods), 'method')}, {quantity(len(seeds), 'seed')}"
    )
    return f"{run.about['dataset']}, {clients}{among}, {played}"


def _summary(run: Run, seeds: int, number: int, hidden: bool) -> str:
    found = verdict(run)
    return (
        f'<div data-run="{number}"{" hidden" * hidden}>'
        f'<p class="note">{escape(run.label())}, seed {run.seed}, after round {run.rounds[-1]["round"]}</p>'
        f'<p class="lead">{escape(found.who)}</p>'
        f'<p class="verdict"><strong>How sure:</strong> {non_breaking(found.how_sure)}</p>'
        f'<p class="verdict"><strong>What to do next:</strong> {non_breaking(found.next)}</p>'
        f'<dl class="notes">{_notes(notes(run, seeds))}</dl></div>'
    )


def _notes(found: Sequence[Note]) -> str:
    return "".join(f"<div><dt>{escape(note.head)}</dt><dd>{non_breaking(note.text)}</dd></div>" for note in found)


def _table(sheet: Sheet) -> str:
    heads = "".join(f'<th scope="col" class="number">{escape(column.head)}</th>' for column in sheet.columns)
    title = escape(sheet.title)
    return (
        f'<p class="note">{title}</p><div class="scroll" role="region" aria-label="{title}" tabindex="0">'
        f'<table aria-label="{title}"><thead><tr><th scope="col">method</th>{heads}</tr></thead>'
        f'{_rows(sheet)}</table></div><p class="note">{escape(" ".join(sheet.notes))}</p>'
    )


def _rows(sheet: Sheet) -> str:
    """The lines; a long table has the methods' families as headings."""
    bodies = []
    for category, lines in groupby(
        sheet.lines, key=lambda line: line.category if len(sheet.lines) > MAX_PLAIN_ROWS else ""
    ):
        head = f'<tr><th scope="rowgroup" colspan="{1 + len(sheet.columns)}">{escape(category)}</th></tr>'
        rows = [
            f'<tr><th scope="row">{escape(line.method)}{"*" * line.unfinished}</th>'
            + "".join(_cell(cell, column.digits or 0) for cell, column in zip(line.cells, sheet.columns, strict=True))
            + "</tr>"
            for line in lines
        ]
        bodies.append(f"<tbody>{head if category else ''}{''.join(rows)}</tbody>")
    return "".join(bodies)


def _cell(cell: Cell | str | None, digits: int) -> str:
    if not isinstance(cell, Cell):
        return f'<td class="number">{escape(cell or "–")}</td>'
    text = f"{cell.mean:.{digits}f}" + ("" if cell.std is None else f" ± {cell.std:.{digits}f}")
    return f'<td class="number">{f"<strong>{text}</strong>" if cell.best else text}</td>'


def _settings(run: Run, number: int, hidden: bool) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.about.get("versions", {}).items())
    toml = escape(write_table(run.settings))
    return (
        f'<div data-run="{number}"{" hidden" * hidden}>'
        f"<p>{escape(run.label())}, seed {run.seed}. Made with {escape(versions or 'unknown versions')}.</p>"
        "<p>To run it again, save the settings below as settings.toml (they are also in the run's folder), then</p>"
        "<pre><code>fedpca run settings.toml --out again</code></pre>"
        f"<details><summary>All settings of this run</summary><pre><code>{toml}</code></pre></details></div>"
    )
