"""Shares, counts and verdicts of an audit in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from typing import Any

from fedpca.results.page.words import capital, clients, enumeration, plural, quantity, sentence

MISLABELED, INNOCENT, UNKNOWN = "mislabeled", "not mislabeled", "cannot tell"
MAX_ESTIMATES = 6  # written out in a sentence; the table has all
Entry = Mapping[str, Any]  # of a client in audit.json


def share_words(share: float) -> str:
    """31 %, or under 1 %."""
    return "under 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def has_interval(client: Entry) -> bool:
    """Whether the client's share has a 95 % interval."""
    return client.get("low") is not None and client.get("high") is not None


def interval_words(client: Entry) -> str:
    """24 % to 39 %, or nothing."""
    return f"{share_words(client['low'])} to {share_words(client['high'])}" if has_interval(client) else ""


def wrong_labels(client: Entry) -> str:
    """At least 60 and at most 98 of its 250 labels."""
    low, high = floor(client["low"] * client["images"] + 0.5), ceil(client["high"] * client["images"])
    return f"at least {low} and at most {high} of its {quantity(client['images'], 'label')}"


def estimate_words(client: Entry) -> str:
    """The share of a client's labels that are wrong, with how many that are; or why that is not known."""
    if client.get("share") is None and not has_interval(client):
        return f"not known ({client.get('why_no_interval') or client.get('reason') or 'not told'})"
    about = "" if client.get("share") is None else f"about {share_words(client['share'])}, "
    why = client.get("why_no_interval") or "no interval"
    return about + (wrong_labels(client) if has_interval(client) else f"{why}")


def judged(entries: Iterable[Entry], verdict: str) -> list[Entry]:
    """The clients with this verdict, the largest share first."""
    own = [client for client in entries if client["verdict"] == verdict]
    return sorted(own, key=lambda client: (-(client.get("share") or 0.0), -(client.get("high") or 0.0)))


def names_of(entries: Iterable[Entry]) -> list[str]:
    """Their names."""
    return [str(client["client"]) for client in entries]


def called(names: Sequence[str], most: int | None = None) -> str:
    """Names in a sentence; those that are only numbers as clients 4 and 7."""
    listed = enumeration(names, most) if most else enumeration(names)
    return f"{plural(names, 'client', 'clients')} {listed}" if all(name.isdecimal() for name in names) else listed


def who_words(audit: Mapping[str, Any]) -> str:
    """Who is judged mislabeled, in one sentence."""
    everybody = audit["clients"]
    accused, unknown = judged(everybody, MISLABELED), judged(everybody, UNKNOWN)
    of_all = f"of the {quantity(len(everybody), 'client')}"
    if accused:
        verb = plural(names_of(accused), "is", "are")
        return f"{len(accused)} {of_all} {verb} judged mislabeled: {called(names_of(accused))}."
    if len(unknown) == len(everybody):
        return f"It cannot be told of any {of_all} whether its labels are wrong."
    told = " Of some it cannot be told." if unknown else ""
    return f"None {of_all} is judged mislabeled.{told}"


def how_many_words(audit: Mapping[str, Any]) -> str:
    """How many labels are wrong of those judged mislabeled; else the largest estimate there is."""
    accused = judged(audit["clients"], MISLABELED)
    if not accused:
        return largest_words(judged(audit["clients"], INNOCENT)) or "Not known of anybody; the table has the intervals."
    said = [f"{called([client['client']])} {estimate_words(client)}" for client in accused[:MAX_ESTIMATES]]
    others = [f"{quantity(len(accused) - len(said), 'other')} in the table below"] * (len(accused) > len(said))
    return sentence(f"wrong by estimate: {'; '.join([*said, *others])}")


def largest_words(entries: Sequence[Entry]) -> str:
    """The largest estimate among those who are not judged mislabeled."""
    known = [client for client in entries if client.get("share") is not None]
    if not known:
        return ""
    most = known[0]
    return f"The largest estimate is that of {called([most['client']])}: {estimate_words(most)}."


def how_sure_words(audit: Mapping[str, Any]) -> str:
    """What "at least" and "at most" mean, and of how many nobody can tell."""
    unknown = judged(audit["clients"], UNKNOWN)
    said = ["“At least” and “at most” are the ends of the 95 % interval."]
    if unknown:
        said.append(f"Of {called(names_of(unknown), MAX_ESTIMATES)} it cannot be told, which is no accusation.")
    if audit.get("reference"):
        said.append(reference_words(audit["reference"]))
    return " ".join(said)


def reference_words(reference: Mapping[str, Any]) -> str:
    """How much the clients vary that the others are compared with."""
    number, base = quantity(reference["clients"], "reference client"), share_words(reference["base"])
    return (
        f"The {number} vary among themselves by {100 * reference['spread']:.1f} points (standard deviation) around a "
        f"level of {base}, at which the models disagree with their labels; that level is subtracted."
    )


def without_answer(audit: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What could not be tested, as (who, what, why); clients with the same words share a line."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in audit.get("not_tested", []):
        found[entry["what"], entry["why"]] += [] if entry["client"] is None else [str(entry["client"])]
    named = {name for names in found.values() for name in names}
    for client in judged(audit["clients"], UNKNOWN):
        if str(client["client"]) not in named:
            found["whether labels are wrong", client["reason"]].append(str(client["client"]))
    return [(capital(clients(names)) if names else "All", what, why) for (what, why), names in found.items()]


def tick(number: float) -> float:
    """The end of the scale on which shares up to this number are drawn."""
    return next(end for end in (0.1, 0.2, 0.5, 1.0, max(1.0, number)) if number <= end)
