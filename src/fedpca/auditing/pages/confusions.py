"""Which classes are taken for which, client by client, where the client told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedpca.auditing.pages.pieces import kind_of, verdict_mark
from fedpca.auditing.pages.words import INNOCENT, MISLABELED, UNKNOWN, Entry, judged, names_of, share_words
from fedpca.results.page.words import clients, enumeration, non_breaking, sentence

MAX_PAIRS = 5  # of a client; clients.csv has all


def confusions(audit: Mapping[str, Any]) -> str:
    """Those judged mislabeled first; the others can be opened."""
    entries = audit["clients"]
    largest = max((pair["share"] for client in entries for pair in client.get("confused") or []), default=0.0)
    first = _cards(judged(entries, MISLABELED), largest)
    others = _cards([*judged(entries, UNKNOWN), *judged(entries, INNOCENT)], largest)
    opened = "" if first else " open"
    head = "All other clients" if first else "Clients that are not judged mislabeled"
    more = f"<details{opened}><summary>{head}</summary>{others}</details>" if others else ""
    nothing = "" if first or others else "<p>No client told which of its classes are confused.</p>"
    return f"{first}{more}{nothing}{_silent(entries)}"


def _cards(entries: Sequence[Entry], largest: float) -> str:
    cards = [_card(client, largest) for client in entries if client.get("confused")]
    return f'<div class="pairs">{"".join(cards)}</div>' if cards else ""


def _card(client: Entry, largest: float) -> str:
    pairs = sorted(client["confused"], key=lambda pair: -pair["images"])
    more = f'<p class="note">and {len(pairs) - MAX_PAIRS} smaller ones</p>' if len(pairs) > MAX_PAIRS else ""
    rows = "".join(_pair(pair, kind_of(client), largest) for pair in pairs[:MAX_PAIRS])
    head = f"<h3>{escape(str(client['client']))} {verdict_mark(client)}</h3>"
    return f"<div>{head}<ul>{rows}</ul>{more}</div>"


def _pair(pair: Mapping[str, Any], kind: str, largest: float) -> str:
    width = 100 * pair["share"] / largest if largest else 0.0
    names = f"{escape(str(pair['given']))} <span aria-label='likely'>→</span> {escape(str(pair['likely']))}"
    return (
        f'<li><span>{names}</span><span class="amount">{pair["images"]} '
        f"({non_breaking(share_words(pair['share']))})</span>"
        '<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="fill" data-kind="{kind}" width="{width:.1f}" height="4"/></svg></li>'
    )


def _silent(entries: Sequence[Entry]) -> str:
    """Who did not tell, and of whom nothing stands out."""
    rate_only = names_of(client for client in entries if client.get("confused") is None)
    none = names_of(client for client in entries if client.get("confused") == [])
    said = [f"{clients(rate_only)} told nothing about classes"] if rate_only else []
    said += [f"no pair of classes stands out at {enumeration(none)}"] if none else []
    return "".join(f'<p class="note">{non_breaking(sentence(text))}</p>' for text in said)
