"""What runs found, in plain sentences made from their records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fedpca.results.page.estimates import knows_shares
from fedpca.results.page.judgements import agreement, beside_the_truth, how_clear, names_in, since_when
from fedpca.results.page.quality import best_method, rare_and_common
from fedpca.results.page.words import capital, clients, enumeration, plural, quantity, sentence
from fedpca.results.read.choices import choices_of
from fedpca.results.read.clients import ClientState, client_states
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run
from fedpca.results.tables.rows import Results

SOMEBODY = (
    "Whether anybody is mislabeled at all: the rule that was used always judges somebody mislabeled; "
    "the -auto methods ask."
)
COUNTS = ("corrected", "dropped")  # choices about so many clients: nothing is said of none
SHARED = "Wrong labels that most clients share would not show: the model learns them as right."


@dataclass(frozen=True)
class Note:
    """A short paragraph under a heading."""

    head: str
    text: str


def headline(run: Run) -> str:
    """Who is judged mislabeled, in one sentence."""
    judged = client_states(run)
    mislabeled = names_in(judged, "mislabeled")
    if not any(client.group for client in judged):
        if not run.facts["judges"]:
            return f"{run.label()} judges nobody: it does not ask whose labels are wrong."
        return f"Nobody has been judged yet, after {quantity(len(run.rounds), 'round')}."
    untold = [client.client for client in judged if client.cannot_tell]
    if len(untold) == len(judged):
        return f"It cannot be told of any of the {quantity(len(judged), 'client')} whether its labels are wrong."
    but = f"; {clients(untold)} cannot be told" if untold else ""
    if not mislabeled:
        return f"None of the {quantity(len(judged), 'client')} is judged mislabeled{but}."
    of_all = f"{len(mislabeled)} of the {quantity(len(judged), 'client')}"
    return f"{of_all} {plural(mislabeled, 'is', 'are')} judged mislabeled: {clients(mislabeled)}{but}."


def notes(run: Run, seeds: int) -> list[Note]:
    """What else is to be said of a run, and what cannot be; `seeds` is how many runs its method has."""
    judged = client_states(run)
    found = [
        Note("Since when", since_when(run, judged)),
        Note("How clear", how_clear(run, judged)),
        Note("Rare and common", rare_and_common(run, judged)),
        Note("Beside the truth", beside_the_truth(run, judged)),
        Note("Chosen by itself", _chosen(run)),
        Note("Left out", _left_out(run)),
        Note("Not known", _not_known(run, judged, seeds)),
    ]
    return [note for note in found if note.text]


def comparison(results: Results, runs: Sequence[Run]) -> list[Note]:
    """What the methods of one scenario show together; nothing if there is one run."""
    group = " of the worst test group" if len(results.groups) > 1 else ""
    worst = Note(capital(f"{metric_words(results.accuracy)}{group}"), best_method(results))
    found = [worst, Note("Do the runs agree?", agreement(runs))]
    return [note for note in found if note.text]


def _chosen(run: Run) -> str:
    """What the method chose, with the round since when and its reason; what does not apply is not said."""
    told = [own for own in choices_of(run) if own.value or own.what not in COUNTS]
    return " ".join(f"{own.text[:-1]} (since round {own.since})." for own in told)


def _left_out(run: Run) -> str:
    """Whose answers the last round did not use, and why."""
    left = run.rounds[-1].get("left_out") or {}
    by_reason: dict[str, list[str]] = defaultdict(list)
    for client, reason in left.items():
        by_reason[reason].append(client)
    said = [f"{clients(names)} ({reason})" for reason, names in by_reason.items()]
    return sentence(f"of round {run.rounds[-1]['round']}: {enumeration(said)}") if said else ""


def _not_known(run: Run, judged: Sequence[ClientState], seeds: int) -> str:
    rule, somebody = run.identify, any(client.group for client in judged)
    unknown = {
        f"How it ends: {len(run.rounds)} of {run.settings.rounds} rounds have been played.": not run.is_done,
        "How good the model is: no round has been tested.": not run.last(),
        "Whether the judgements are right: the truth is not recorded.": somebody and judged[0].truth is None,
        SOMEBODY: somebody and rule is not None and rule.rule == "mixture" and rule.mixture.min_margin is None,
        SHARED: somebody and not knows_shares(judged),
        "How much of this is chance: the method was run with one seed.": seeds == 1,
    }
    return " ".join(text for text, applies in unknown.items() if applies)
