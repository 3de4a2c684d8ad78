"""A site's own sheet: its result in plain words, and the images to look at first. It stays at the site."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedpca.auditing.pages.pieces import bar, command, notes, own_asset, steps, style, verdict_mark
from fedpca.auditing.pages.words import (
    INNOCENT,
    MISLABELED,
    Entry,
    estimate_words,
    has_interval,
    interval_words,
    share_words,
    tick,
)
from fedpca.auditing.suspects import COLUMNS
from fedpca.results.page.frame import asset, fill
from fedpca.results.page.words import non_breaking, quantity

MAX_SHOWN = 60  # images, or rows of a table; suspects.csv has all
MAX_COLUMNS = 12  # of a row of a table


def sheet_html(site: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], thumbnails: Mapping[int, bytes]) -> str:
    """The whole sheet of a site: `site` as in site.json, `rows` as in suspects.csv, thumbnails as PNG by row."""
    suspects = [row for row in rows if str(row["is_label_issue"]).lower() == "true"]
    return fill(
        own_asset("sheet.html"),
        style("sheet.css"),
        asset("theme.js"),
        title=escape(str(site["client"])),
        scene=escape(f"{site['name']}: what an audit says of these labels"),
        unknown=_unknown(site),
        lead=non_breaking(_lead(site)),
        verdict=verdict_mark(site),
        bar=_bar(site),
        how_sure=non_breaking(_how_sure(site)),
        steps=steps(_steps(site, suspects)),
        list_words=non_breaking(_list_words(site, suspects)),
        list=_list(suspects[:MAX_SHOWN], thumbnails),
        made=notes(_how_made(site, rows)),
    )


def _unknown(site: Entry) -> str:
    """What could not be told of this site comes first."""
    why = site.get("why_no_interval") or (site["reason"] if site["verdict"] not in (MISLABELED, INNOCENT) else "")
    if not why:
        return ""
    what = "The share of wrong labels has no interval" if site.get("share") is not None else "The share is not known"
    return (
        '<section id="unknown" aria-labelledby="unknown-head"><h2 id="unknown-head">What could not be tested</h2>'
        f"<p>{what}: {non_breaking(why)}.</p></section>"
    )


def _lead(site: Entry) -> str:
    if site["verdict"] == MISLABELED:
        return f"Many of these labels look wrong: {estimate_words(site)}."
    if site["verdict"] == INNOCENT:
        known = f": {estimate_words(site)}" if site.get("share") is not None else ""
        return f"These labels are not found to be worse than those of other clients{known}."
    return "Whether these labels are wrong cannot be told. That is no accusation."


def _bar(site: Entry) -> str:
    if site.get("share") is None:
        return ""
    end = tick(site.get("high") or site["share"])
    interval = f", 95&nbsp;% interval {non_breaking(interval_words(site))}" if has_interval(site) else ""
    words = (
        f'<p class="note">{non_breaking(share_words(site["share"]))}{interval}; the bar ends at {share_words(end)}</p>'
    )
    return f'<div class="estimate">{bar(site, end)}{words}</div>'


def _how_sure(site: Entry) -> str:
    ends = "“At least” and “at most” are the ends of the 95 % interval. " if has_interval(site) else ""
    return (
        f"{ends}The model that judged these labels never saw them: it learned from the other clients. It cannot see "
        "errors that most clients share, and it can be wrong where your data differ from theirs. Only reading again "
        "tells."
    )


def _steps(site: Entry, suspects: Sequence[object]) -> dict[str, str]:
    sample, review = int(site.get("sample") or 0), command("fedpca audit review . --page")
    return {
        "Read the random sample first.": f"{review}, typed in this folder, shows {quantity(sample, 'label')} drawn at "
        "random, one after another, before it shows the list below. It is best done before looking further down: "
        "whoever knows the suspects reads the sample with other eyes." * bool(sample),
        "Then the list.": "The same page goes on with it, worst first. Keep a label that is right." * bool(suspects),
        "See what it comes to.": f"{command('fedpca audit review .')} gives the share of wrong labels with its "
        "interval from what you read, which no model can sway, and writes <code>corrected.csv</code>.",
        "Or use a spreadsheet.": "<code>suspects.csv</code> has an empty column <code>reviewed_label</code>: write the "
        "right class there, also if the given one is right.",
    }


def _list_words(site: Entry, suspects: Sequence[object]) -> str:
    if not suspects and site.get("list_warning"):
        return f"The list is left empty: {site['list_warning']}. The random sample tells."
    if not suspects:
        return "The list is empty: no single label stands out at the chosen level."
    shown = min(len(suspects), MAX_SHOWN)
    first = f" Shown are the first {shown}; suspects.csv has all." if shown < len(suspects) else ""
    if site.get("list_warning"):
        first += f" Beware: {site['list_warning']}."
    false = f"about {share_words(site['fdr'])} of them, {_false_alarms(site, len(suspects))}, may be right after all"
    return f"{quantity(len(suspects), 'label')} to look at, the most doubtful first; {false}.{first}"


def _false_alarms(site: Entry, suspects: int) -> str:
    return f"that is up to {max(1, round(site['fdr'] * suspects))}"


def _list(suspects: Sequence[Mapping[str, Any]], thumbnails: Mapping[int, bytes]) -> str:
    """Pictures where there are any, else a table."""
    if any(int(row["row"]) in thumbnails for row in suspects):
        cards = "".join(_card(row, thumbnails.get(int(row["row"]))) for row in suspects)
        return f'<ol class="cards">{cards}</ol>'
    return _table(suspects) if suspects else ""


def _card(row: Mapping[str, Any], png: bytes | None) -> str:
    name = escape(str(row.get("path") or f"row {row['row']}"))
    if png is None:
        picture = '<p class="missing">no picture</p>'
    else:
        picture = f'<img src="data:image/png;base64,{b64encode(png).decode()}" alt="{name}" loading="lazy">'
    return (
        f"<li>{picture}<p class='labels'>{_labels(row)}</p>"
        f'<p class="note">score {_number(row["label_score"], 2)}, p-value {_number(row["p_value"], 4)}</p>'
        f'<p class="note path">{name}</p></li>'
    )


def _labels(row: Mapping[str, Any]) -> str:
    given, likely = escape(str(row["given_label"])), escape(str(row["predicted_label"]))
    return f'<span class="given">{given}</span> <span class="to"><span aria-label="likely">→</span> {likely}</span>'


def _number(value: object, digits: int) -> str:
    """A number rounded; what is no number, as it is."""
    try:
        number = float(str(value))
    except ValueError:
        return escape(str(value)) or "–"
    least = 10.0**-digits
    return f"below {least:g}" if 0 < number < least else f"{number:.{digits}f}"


def _table(suspects: Sequence[Mapping[str, Any]]) -> str:
    """One row each, with the columns of the data where they are given."""
    own = [name for name in suspects[0] if name not in COLUMNS][:MAX_COLUMNS]
    heads = "".join(
        f'<th scope="col">{escape(str(head))}</th>' for head in ("row", "given → likely", "score", "p-value", *own)
    )
    rows = "".join(_table_row(row, own) for row in suspects)
    return (
        '<div class="scroll" role="region" aria-labelledby="list-head" tabindex="0"><table aria-labelledby="list-head">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _table_row(row: Mapping[str, Any], own: Sequence[str]) -> str:
    name = f"{row['row']} {row['path']}" if row.get("path") else str(row["row"])
    numbers = f"<td>{_number(row['label_score'], 2)}</td><td>{_number(row['p_value'], 4)}</td>"
    values = "".join(f"<td>{escape(str(row.get(column, '')))}</td>" for column in own)
    return f'<tr><th scope="row">{escape(name)}</th><td class="labels">{_labels(row)}</td>{numbers}{values}</tr>'


def _how_made(site: Entry, rows: Sequence[object]) -> dict[str, str]:
    return {
        "How the list was made": f"For each of the {quantity(len(rows), 'label')} the model gives a probability of the "
        "given class: the score. The p-value says how rare so low a score is among labels of the reference clients, by "
        "class. Benjamini and Hochberg's rule then draws the line.",
        "What may be false": f"On average at most {share_words(site['fdr'])} of the list should be right labels. That "
        "holds where your images are like those of the reference clients; unlike ones come onto the list too easily.",
        "What it does not say": "Labels that are not on the list can be wrong as well. Errors that most clients share "
        "are never on it.",
        "Where this stays": "Here. The coordinator has seen your numbers, never a row, a label or an image.",
    }
