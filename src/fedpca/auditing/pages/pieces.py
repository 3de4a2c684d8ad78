"""Pieces of HTML that the pages of an audit share: the mark of a verdict, a share as a bar with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from fedpca.auditing.pages.words import INNOCENT, MISLABELED, UNKNOWN, Entry, has_interval
from fedpca.results.page.frame import asset
from fedpca.results.page.words import non_breaking, quantity

PACKAGE = "fedpca.auditing.pages"
KINDS = {MISLABELED: "m", INNOCENT: "c", UNKNOWN: "-"}  # colours of the pages of runs
SHAPES = {  # so that verdicts differ without colours too
    "m": '<path d="M0-7 7 6H-7Z"/>',
    "c": '<circle r="6"/>',
    "-": '<circle class="open" r="6"/><path class="open" d="M-3 0H3"/>',
}


def own_asset(name: str) -> str:
    """A file of the pages of an audit."""
    return asset(name, PACKAGE)


def style(name: str) -> str:
    """The style of all pages, what all pages of an audit add, and what this one adds."""
    return asset("base.css") + own_asset("audit.css") + own_asset(name)


def kind_of(client: Entry) -> str:
    """The letter of the verdict."""
    return KINDS.get(client["verdict"], "-")


def verdict_mark(client: Entry) -> str:
    """The verdict as a shape, a colour and words."""
    kind = kind_of(client)
    shape = f'<svg viewBox="-8 -8 16 16" width="14" height="14" aria-hidden="true">{SHAPES[kind]}</svg>'
    return f'<span class="mark-of" data-kind="{kind}">{shape}{escape(client["verdict"])}</span>'


def bar(client: Entry, end: float, spread: float = 0.0) -> str:
    """The share as a bar from 0 to `end`, its interval as a line with whiskers, and how much references vary."""

    def at(value: float) -> str:
        return f"{100 * min(max(value, 0.0), end) / end:.1f}"

    marks = ""
    if client.get("share") is not None:
        marks += f'<rect class="zone" y="2" width="{at(2 * spread)}" height="10"/>' if spread else ""
        marks += f'<rect class="fill" data-kind="{kind_of(client)}" y="2" width="{at(client["share"])}" height="10"/>'
    if has_interval(client):
        low, high = at(client["low"]), at(client["high"])
        marks += f'<path class="interval" d="M{low},3V11M{high},3V11M{low},7H{high}"/>'
    return (
        '<svg class="share" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" y="2" width="100" height="10"/>{marks}</svg>'
    )


def notes(said: Mapping[str, str]) -> str:
    """Headings with a text each; empty texts are left out."""
    return "".join(
        f"<div><dt>{escape(head)}</dt><dd>{non_breaking(text)}</dd></div>" for head, text in said.items() if text
    )


def steps(said: Mapping[str, str]) -> str:
    """Numbered steps, each with a few words in bold before it; texts are HTML already."""
    return "".join(f"<li><strong>{escape(head)}</strong> {text}</li>" for head, text in said.items() if text)


def command(text: str) -> str:
    """A command as it is typed."""
    return f"<code>{escape(text)}</code>"


def scene_of(audit: Mapping[str, Any]) -> str:
    """What was audited and how, in one line."""
    what = f"{quantity(len(audit['clients']), 'client')}, {len(audit['classes'])} classes"
    made = f"{audit['folds']} folds of clients, {quantity(audit['rounds'], 'round')} of {audit['method']}"
    return f"{what}; {made}; {audit['engine']}; {audit['made']}"
