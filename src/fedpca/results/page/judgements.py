"""Sentences on who is judged mislabeled: since when, how clearly, and how rightly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from fedpca.results.page import estimates
from fedpca.results.page.words import clients, enumeration, plural, quantity, sentence
from fedpca.results.read.clients import ClientState, client_states, clients_of, column, has_estimates, threshold
from fedpca.results.read.runs import Run

UNINFORMATIVE = "Suspicion is the estimated share of a client's labels that carry no information, from 0 to 1"
MEANINGS = {
    "mixture": "Suspicion is how steadily a client had a high loss despite a high dispersion, from 0 to 1",
    "slope": UNINFORMATIVE,
    "auto": UNINFORMATIVE,  # in run folders of version 0.1, which have no estimates with intervals
}


def names_in(judged: Sequence[ClientState], group: str) -> list[str]:
    """The clients that are judged to be of a group."""
    return [client.client for client in judged if client.group == group]


def since_when(run: Run, judged: Sequence[ClientState]) -> str:
    """From which rounds on clients have been judged mislabeled, and who no longer is."""
    by_round: dict[int, list[str]] = defaultdict(list)
    for client in judged:
        if client.group == "mislabeled" and client.since is not None:
            by_round[client.since].append(client.client)
    said = [sentence(f"{clients(names)} since round {number}") for number, names in sorted(by_round.items())]
    if len(by_round) == 1:
        ((number, names),) = by_round.items()
        said = [f"{plural(names, 'It has', 'All have')} been judged so in every round since round {number}."]
    elif len(by_round) > 4:
        said = [f"From rounds between {min(by_round)} and {max(by_round)} on; the clients' table has each."]
    former = _formerly_mislabeled(run, judged)
    if former:
        was = plural(former, "was", "were")
        said.append(sentence(f"{clients(former)} {was} judged mislabeled in an earlier round, but no longer"))
    return " ".join(said)


def _formerly_mislabeled(run: Run, judged: Sequence[ClientState]) -> list[str]:
    """Those judged mislabeled in some round, but not in the last."""
    names = clients_of(run)
    ever = {
        name
        for line in run.rounds
        for name, group in zip(names, column(line, "group", names), strict=True)
        if group == "mislabeled"
    }
    return [client.client for client in judged if client.client in ever and client.group != "mislabeled"]


def how_clear(run: Run, judged: Sequence[ClientState]) -> str:
    """Suspicions beside the threshold, or why they cannot be compared."""
    line, rule = threshold(run), run.identify
    if not any(client.group for client in judged):
        return ""
    if has_estimates(run):
        return estimates.how_clear(run, judged)
    if line is None or rule is None:
        return f"{run.label()} judges without a threshold on suspicion, so that there is no margin to give."
    known = {client.client: client.suspicion for client in judged if client.suspicion is not None}
    if not known:
        return f"From a suspicion of {line:g} on a client is judged mislabeled; this run does not record suspicions."
    mislabeled = {name: known[name] for name in names_in(judged, "mislabeled") if name in known}
    others = {name: value for name, value in known.items() if name not in mislabeled}
    said = [f"{MEANINGS[rule.rule]}; from {line:g} on a client is judged mislabeled."]
    if mislabeled:
        said.append(sentence(f"for {_range(mislabeled)}"))
    if others:
        said.append(sentence(f"the largest {'among the others ' * bool(mislabeled)}is {_largest(others)}"))
    return " ".join(said)


def _range(values: Mapping[str, float]) -> str:
    """The least and the largest of some clients' values, with their names."""
    least, most = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
    if len(values) == 1:
        return f"client {least} it is {values[least]:.2f}"
    if f"{values[least]:.2f}" == f"{values[most]:.2f}":
        return f"the {len(values)} judged mislabeled it is {values[least]:.2f}"
    low, high = f"{values[least]:.2f} (client {least})", f"{values[most]:.2f} (client {most})"
    return f"the {len(values)} judged mislabeled it lies between {low} and {high}"


def _largest(values: Mapping[str, float]) -> str:
    name = max(values, key=lambda name: values[name])
    return f"{values[name]:.2f} (client {name})" if values[name] >= 0.005 else "0.00"


def beside_the_truth(run: Run, judged: Sequence[ClientState]) -> str:
    """How right the judgements are; nothing where the truth is not known."""
    if not all(client.truth for client in judged):
        return ""
    truly = [client.client for client in judged if client.truth and "mislabeled" in client.truth]
    if not any(client.group for client in judged):
        return sentence(f"truly mislabeled {plural(truly, 'is', 'are')} {clients(truly)}")
    missed = [name for name in truly if name not in names_in(judged, "mislabeled")]
    wrong = [client for client in judged if client.group == "mislabeled" and client.client not in truly]
    said = ["The truth is known here; it was not used for judging.", _how_many(truly, missed, wrong)]
    if missed:
        said.append(sentence(f"missed: {clients(missed)}"))
    if wrong:
        kinds = {kind: [client.client for client in wrong if client.truth == kind] for kind in ("common", "rare")}
        named = [f"{clients(names)} (truly {kind})" for kind, names in kinds.items() if names]
        said.append(sentence(f"wrongly judged mislabeled: {enumeration(named)}"))
    return " ".join((*said, *_rare_beside_the_truth(run, judged)))


def _how_many(truly: Sequence[str], missed: Sequence[str], wrong: Sequence[ClientState]) -> str:
    if not truly:
        return "Nobody is mislabeled" + ("." if wrong else ", and nobody is judged so.")
    if not missed and not wrong:
        return "All who are mislabeled are judged so, and nobody else is."
    number = len(truly) - len(missed)
    return f"Of {quantity(len(truly), 'mislabeled client')}, {number} {'is' if number == 1 else 'are'} judged so."


def _rare_beside_the_truth(run: Run, judged: Sequence[ClientState]) -> list[str]:
    rare = [client for client in judged if client.truth == "rare"]
    if not rare or run.identify is None:
        return []
    number = sum(client.group == "rare" for client in rare)
    others = sum(client.group == "rare" and client.truth != "rare" for client in judged)
    also = f", and so {plural([''] * others, 'is', 'are')} {quantity(others, 'other')}" if others else ""
    verb = "is" if number == 1 else "are"
    return [f"Of {quantity(len(rare), 'truly rare client')}, {number} {verb} judged rare{also}."]


def agreement(runs: Sequence[Run]) -> str:
    """Whom all runs judge mislabeled that judge anybody, and whom only some; nothing if fewer than two judge."""
    judging = [judged for judged in map(client_states, runs) if any(client.group for client in judged)]
    if len(judging) < 2:
        return ""
    counts = Counter(name for judged in judging for name in names_in(judged, "mislabeled"))
    by_all = [name for name, number in counts.items() if number == len(judging)]
    said = [f"{len(judging)} runs judge.", "Nobody is judged mislabeled by all of them."]
    if by_all:
        said[1] = f"All of them judge {clients(by_all)} mislabeled."
    some = [f"{name} ({number})" for name, number in counts.most_common() if number < len(judging)]
    if some:
        said.append(sentence(f"only some judge {clients(some)} mislabeled; in brackets, how many"))
    return " ".join(said)
