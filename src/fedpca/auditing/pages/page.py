"""The coordinator's page: from audit.json alone, in one file; no image, label or row of any site is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedpca.auditing.pages.confusions import confusions
from fedpca.auditing.pages.pieces import bar, command, notes, own_asset, scene_of, steps, style, verdict_mark
from fedpca.auditing.pages.words import (
    INNOCENT,
    MISLABELED,
    UNKNOWN,
    Entry,
    called,
    has_interval,
    how_many_words,
    how_sure_words,
    interval_words,
    judged,
    names_of,
    reference_words,
    share_words,
    tick,
    who_words,
    without_answer,
)
from fedpca.auditing.record import ONE_PLACE
from fedpca.results.page.frame import asset, fill
from fedpca.results.page.words import capital, non_breaking, plural, quantity

HEADS = ("client", "verdict", "share of wrong labels", "95 % interval", "labels", "why")
CLASSES = {"verdict": "answer", "share of wrong labels": "estimate", "95 % interval": "interval-of", "labels": "number"}


def page_html(audit: Mapping[str, Any]) -> str:
    """The whole page."""
    return fill(
        own_asset("page.html"),
        style("page.css"),
        asset("theme.js"),
        title=escape(str(audit["name"])),
        scene=escape(scene_of(audit)),
        untested=_untested(audit),
        lead=escape(who_words(audit)),
        how_many=non_breaking(how_many_words(audit)),
        how_sure=non_breaking(how_sure_words(audit)),
        next=non_breaking(_next_words(audit["clients"])),
        counts=_counts(audit["clients"]),
        clients=_clients(audit),
        confusions=confusions(audit),
        steps=steps(_steps(audit)),
        meaning=notes(_meaning(audit)),
    )


def _untested(audit: Mapping[str, Any]) -> str:
    found = without_answer(audit)
    if not found:
        return "<p>Everything that an audit can test was tested, of every client.</p>"
    lines = [
        f"<li><strong>{escape(who)}:</strong> {non_breaking(what)}. "
        f'<span class="why">{non_breaking(_full_stop(capital(why)))}</span></li>'
        for who, what, why in found
    ]
    return f"<ul>{''.join(lines)}</ul>"


def _full_stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _next_words(entries: Sequence[Entry]) -> str:
    accused = names_of(judged(entries, MISLABELED))
    if len(judged(entries, UNKNOWN)) == len(entries):
        return "What could not be tested stands above. Only re-reading a random sample tells, at each site."
    if not accused:
        return "Nothing must be done; what could not be tested stands above."
    each = plural(accused, "it", "each of them")
    return f"Talk to {called(accused)}, and have {each} re-read its random sample before anything else is decided."


def _counts(entries: Sequence[Entry]) -> str:
    """How many clients have each verdict, as a key to the marks."""
    items = [
        f"<li>{verdict_mark(own[0])} <b>{len(own)}</b></li>"
        for verdict in (MISLABELED, UNKNOWN, INNOCENT)
        if (own := judged(entries, verdict))
    ]
    return f'<ul class="counts" aria-label="Verdicts">{"".join(items)}</ul>'


def _clients(audit: Mapping[str, Any]) -> str:
    """One row per client, those judged mislabeled first."""
    entries = [client for verdict in (MISLABELED, UNKNOWN, INNOCENT) for client in judged(audit["clients"], verdict)]
    end = tick(max((client.get("high") or client.get("share") or 0.0 for client in entries), default=0.0))
    spread = (audit.get("reference") or {}).get("spread") or 0.0
    heads = "".join(f'<th role="columnheader" scope="col" class="{_column(head)}">{head}</th>' for head in HEADS)
    rows = "".join(_row(client, end, spread) for client in entries)
    return (
        f'<p class="note">{_scale_words(end, spread)}</p>'
        '<table role="table" aria-labelledby="clients-head">'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead><tbody role="rowgroup">{rows}</tbody></table>'
    )


def _scale_words(end: float, spread: float) -> str:
    scale = f"Bars run from 0 to {share_words(end)}; the line with two ends is the 95 % interval."
    zone = (
        " The shaded start of each bar is what reference clients vary by (two standard deviations)." if spread else ""
    )
    return non_breaking(scale + zone)


def _column(head: str) -> str:
    """The class of a column, by which a narrow screen places its cells."""
    return CLASSES.get(head, head)


def _row(client: Entry, end: float, spread: float) -> str:
    is_known = client.get("share") is not None and client["verdict"] != UNKNOWN
    share = share_words(client["share"]) if is_known else "–"
    interval = (
        interval_words(client) if has_interval(client) else f"none: {client.get('why_no_interval') or 'not told'}"
    )
    rate_only = ' <span class="tag">told its rate only</span>' if client.get("told") == "rate" else ""
    cells = {
        "answer": verdict_mark(client),
        "estimate": f"<b>{non_breaking(share)}</b>{bar(client, end, spread)}",
        "interval-of": f'<span class="narrow">95&nbsp;% interval </span>{non_breaking(interval)}',
        "number": f'{client["images"]}<span class="narrow"> labels</span>',
        "why": non_breaking(client["reason"]) + rate_only,
    }
    tds = "".join(f'<td role="cell" class="{name}">{html}</td>' for name, html in cells.items())
    return f'<tr role="row"><th role="rowheader" scope="row">{escape(str(client["client"]))}</th>{tds}</tr>'


def _steps(audit: Mapping[str, Any]) -> dict[str, str]:
    accused, unknown = (names_of(judged(audit["clients"], verdict)) for verdict in (MISLABELED, UNKNOWN))
    sample = quantity(int(audit.get("sample") or 0), "random label")
    review = f"{command('fedpca audit review SITE --page')} shows them one after another, at the site"
    files = "<code>sheet.html</code> and <code>suspects.csv</code>"
    return {
        "Tell the sites.": f"Hand each its own folder, with {files}, and to nobody else: it holds rows and images."
        if _in_one_place(audit)
        else f"Each has its own {files}, which you have not seen and need not see.",
        f"Have {called(accused)} re-read.": f"{sample} each, then the list of suspects: {review}. Only then it is "
        "known how many labels are wrong, whoever is right: the model or the site." * bool(accused),
        f"Decide on {called(unknown)}.": (
            "More labels, more clients or the same re-reading can tell; until then they count as innocent."
            * bool(unknown)
        ),
        "Train with what was corrected.": f"{command('fedpca audit review SITE')} writes <code>corrected.csv</code>, "
        "which training takes as <code>data.corrected_labels</code>.",
        "Audit again.": "With fewer wrong labels the model, and so the audit, sees more.",
    }


def _meaning(audit: Mapping[str, Any]) -> dict[str, str]:
    reference = reference_words(audit["reference"]) if audit.get("reference") else "There were no reference clients."
    rows = {"all": "all labels", "train": "the labels of the training part"}.get(audit["rows"], str(audit["rows"]))
    return {
        "At least": "Errors that most clients share are invisible: the model learns them as right. Every share is what "
        "a client has beyond them, so the true number may be larger, also of a client that is not judged mislabeled.",
        "Not a mark for people": "A share says that labels differ from what the other clients' labels teach. Another "
        "device, another definition of a class or other patients can do that too. Only re-reading tells which.",
        "Cannot tell": "This is an answer, not a hint. It says that the data do not suffice, for the reason given.",
        "95 % interval": "It covers the choice of labels and how much reference clients vary. It does not cover errors "
        "that are shared, nor labels that are unlike those of all others.",
        "Reference clients": reference,
        "How it was made": f"Each client was judged by models that never saw its labels ({audit['folds']} folds over "
        f"clients, {quantity(audit['rounds'], 'round')} of {audit['method']}, {rows}). At most "
        f"{share_words(audit['fdr'])} of a site's list of suspects should be false.",
        "What left the sites": "The data lay in one place: nothing had to leave a site for this audit."
        if _in_one_place(audit)
        else "Numbers, intervals and small tables of classes; no image, no row, no single label.",
    }


def _in_one_place(audit: Mapping[str, Any]) -> bool:
    return bool(audit["engine"] == ONE_PLACE)
