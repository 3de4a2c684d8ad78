"""The first three lines of the page: who is judged mislabeled, how sure that is, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpca.results.page import estimates
from fedpca.results.page.judgements import names_in
from fedpca.results.page.summary import headline
from fedpca.results.page.words import plural, quantity
from fedpca.results.read.clients import (
    ClientState,
    client_states,
    has_estimates,
    judging_began,
    threshold,
    unchanged_since,
)
from fedpca.results.read.runs import Run

SETTLED = 3  # rounds in a row with the same clients judged mislabeled, from which on it is worth acting
SAMPLE = 100  # labels that a site reads again: they give the share of wrong ones to within 10 points, in 95 % of cases
ALWAYS = "This method always judges somebody mislabeled, also where nobody is."


@dataclass(frozen=True)
class Verdict:
    """One run in three lines for whoever has to act on it."""

    who: str
    how_sure: str
    next: str


def verdict(run: Run) -> Verdict:
    """What the run says about its clients' labels, and what follows from it."""
    judged = client_states(run)
    if not any(client.group for client in judged):
        return Verdict(headline(run), _why_not_judged(run), _without_judgement(run))
    return Verdict(headline(run), _how_sure(run, judged), _advice(run, judged))


def _why_not_judged(run: Run) -> str:
    if not run.facts["judges"]:
        return "This run says nothing about anybody's labels."
    warmup = _warmup(run)
    begins = f": judging begins in round {warmup + 1}, after the warm-up" if warmup >= len(run.rounds) else ""
    return f"It cannot be told yet{begins}."


def _without_judgement(run: Run) -> str:
    if not run.facts["judges"]:
        return "To ask whose labels are wrong, run a method that judges clients, such as fedpca."
    if not run.is_done:
        return "Wait for more rounds."
    return f"Run it again with more than {quantity(run.settings.rounds, 'round')}."


def _warmup(run: Run) -> int:
    """The rounds before anybody can be judged, as the settings have them; 0 if they name none."""
    given = [own.get("warmup") for own in run.settings.method.values()]
    return max((rounds for rounds in given if isinstance(rounds, int)), default=0)


def _how_sure(run: Run, judged: Sequence[ClientState]) -> str:
    """Estimates, or suspicion beside the threshold, since when, and since when anybody is judged at all."""
    began = judging_began(run)
    estimated = has_estimates(run)
    clear = estimates.how_sure(run, judged) if estimated else _beside_the_threshold(run, judged)
    untold = estimates.cannot_be_told(run, judged)
    said = [clear, _since(judged), untold, f"Judging began in round {began}."]
    return " ".join((*(text for text in said if text), *([ALWAYS] if _always_names_somebody(run) else [])))


def _beside_the_threshold(run: Run, judged: Sequence[ClientState]) -> str:
    line = threshold(run)
    known = {client.client: client.suspicion for client in judged if client.suspicion is not None}
    if line is None or not known:
        return "There is no number for it: this run has no suspicion to compare with a threshold."
    mislabeled = {name: known[name] for name in names_in(judged, "mislabeled") if name in known}
    if mislabeled:
        return f"Suspicion {_values(mislabeled)}, threshold {line:g}."
    return f"The largest suspicion is {max(known.values()):.2f}, below the threshold of {line:g}."


def _values(known: Mapping[str, float]) -> str:
    """0.93, or 0.31 (client a) to 0.88 (client d)."""
    low, high = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
    if f"{known[low]:.2f}" == f"{known[high]:.2f}":
        return f"{known[high]:.2f}"
    return f"{known[low]:.2f} (client {low}) to {known[high]:.2f} (client {high})"


def _since(judged: Sequence[ClientState]) -> str:
    rounds = sorted({client.since for client in judged if client.group == "mislabeled" and client.since is not None})
    if not rounds:
        return ""
    later = f", the latest since round {rounds[-1]}" if len(rounds) > 1 else ""
    return f"Judged so without a break since round {rounds[0]}{later}."


def _always_names_somebody(run: Run) -> bool:
    rule = run.identify
    return rule is not None and rule.rule == "mixture" and rule.mixture.min_margin is None


def _advice(run: Run, judged: Sequence[ClientState]) -> str:
    """What a coordinator does: nothing, wait, ask with another method, or have labels read again."""
    mislabeled, since = names_in(judged, "mislabeled"), unchanged_since(run)
    if run.rounds[-1]["round"] - since + 1 < SETTLED:
        more = "Wait for more rounds" if not run.is_done else "Play more rounds before you act"
        return f"{more}: who is judged mislabeled has been the same only since round {since}."
    untold = estimates.advice(judged)
    if not mislabeled:
        return untold or "Nothing."
    if _always_names_somebody(run):
        return "Ask first whether anybody is mislabeled at all: run a method that asks, such as fedpca."
    site = plural(mislabeled, "this site", "each of these sites")
    sample = f"{SAMPLE} or all if there are fewer"
    read = f"Have {site} re-read a random sample of its labels, {sample}: only that shows whether they are wrong."
    return f"{read} {untold}".rstrip()
