"""What runs found, in plain sentences made from their records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedpca.results.page.words import capital, clients, counted, listed, percent, plural, sentence
from fedpca.results.read.clients import Standing, clients_of, column, standings, threshold
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run
from fedpca.results.tables.rows import Results

MEANINGS = {
    "mixture": "Suspicion is how steadily a client had a high loss despite a high dispersion, from 0 to 1",
    "auto": "Suspicion is the estimated share of a client's labels that carry no information, from 0 to 1",
}
ALWAYS = "Whether anybody is mislabeled at all: the rule that was used always names somebody; the -auto methods ask."
ALIKE = "Wrong labels that most clients share would not show: the model learns them as right."


@dataclass(frozen=True)
class Note:
    """A short paragraph under a heading."""

    head: str
    text: str


def headline(run: Run) -> str:
    """Who is judged mislabeled, in one sentence."""
    judged = standings(run)
    accused = _in(judged, "mislabeled")
    if not any(client.group for client in judged):
        if not run.facts["judges"]:
            return f"{run.label()} judges nobody: it does not ask whose labels are wrong."
        return f"Nobody has been judged yet, after {counted(len(run.rounds), 'round')}."
    if not accused:
        return f"None of the {counted(len(judged), 'client')} is judged mislabeled."
    of_all = f"{len(accused)} of the {counted(len(judged), 'client')} {plural(accused, 'is', 'are')} judged mislabeled"
    return f"{of_all}: {clients(accused)}."


def notes(run: Run, seeds: int) -> list[Note]:
    """What else is to be said of a run, and what cannot be; `seeds` is how many runs its method has."""
    judged = standings(run)
    found = [
        Note("Since when", _since_when(run, judged)),
        Note("How clear", _how_clear(run, judged)),
        Note("Rare and common", _rare_and_common(run, judged)),
        Note("Beside the truth", _beside_the_truth(run, judged)),
        Note("Left out", _left_out(run)),
        Note("Not known", _not_known(run, judged, seeds)),
    ]
    return [note for note in found if note.text]


def comparison(results: Results, runs: Sequence[Run]) -> list[Note]:
    """What the methods of one scenario show together; nothing if there is one run."""
    worst = Note(capital(f"{metric_words(results.accuracy)} of the worst test group"), _best(results))
    found = [worst, Note("Do the runs agree?", _agreement(runs))]
    return [note for note in found if note.text]


def _in(judged: Sequence[Standing], group: str) -> list[str]:
    return [client.client for client in judged if client.group == group]


def _since_when(run: Run, judged: Sequence[Standing]) -> str:
    by_round: dict[int, list[str]] = defaultdict(list)
    for client in judged:
        if client.group == "mislabeled" and client.since is not None:
            by_round[client.since].append(client.client)
    told = [sentence(f"{clients(names)} since round {number}") for number, names in sorted(by_round.items())]
    if len(by_round) == 1:
        ((number, names),) = by_round.items()
        told = [f"{plural(names, 'It has', 'All have')} been judged so in every round since round {number}."]
    elif len(by_round) > 4:
        told = [f"From rounds between {min(by_round)} and {max(by_round)} on; the clients' table has each."]
    once = _once_accused(run, judged)
    if once:
        was = plural(once, "was", "were")
        told.append(sentence(f"{clients(once)} {was} judged mislabeled in an earlier round, but no longer"))
    return " ".join(told)


def _once_accused(run: Run, judged: Sequence[Standing]) -> list[str]:
    """Those judged mislabeled in some round, but not in the last."""
    names = clients_of(run)
    ever = {
        name
        for line in run.rounds
        for name, group in zip(names, column(line, "group", names), strict=True)
        if group == "mislabeled"
    }
    return [client.client for client in judged if client.client in ever and client.group != "mislabeled"]


def _how_clear(run: Run, judged: Sequence[Standing]) -> str:
    """Suspicions beside the threshold, or why they cannot be compared."""
    line, rule = threshold(run), run.identify
    if not any(client.group for client in judged):
        return ""
    if line is None or rule is None:
        return f"{run.label()} judges without a threshold on suspicion, so that there is no margin to give."
    known = {client.client: client.suspicion for client in judged if client.suspicion is not None}
    if not known:
        return f"From a suspicion of {line:g} on a client is judged mislabeled; this run does not record suspicions."
    accused = {name: known[name] for name in _in(judged, "mislabeled") if name in known}
    others = {name: value for name, value in known.items() if name not in accused}
    told = [f"{MEANINGS[rule.rule]}; from {line:g} on a client is judged mislabeled."]
    if accused:
        told.append(sentence(f"for {_range(accused)}"))
    if others:
        told.append(sentence(f"the largest {'among the others ' * bool(accused)}is {_largest(others)}"))
    return " ".join(told)


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


def _rare_and_common(run: Run, judged: Sequence[Standing]) -> str:
    """Who is judged rare, how the test groups fare, and what rare and mislabeled clients weigh."""
    rare, told = _in(judged, "rare"), []
    if rare or (run.identify and any(client.group for client in judged)):
        told.append(sentence(f"{clients(rare)} {plural(rare, 'is', 'are')} judged rare"))
    tested = run.last()
    if tested:
        number = len(next(iter(tested.values())))
        rounds = "the last tested round" if number == 1 else f"the last {number} tested rounds, on average"
        scores = [f"{percent(fmean(values))} on the {group} test images" for group, values in tested.items()]
        told.append(f"In {rounds}, the {metric_words(run.accuracy)} is {listed(scores)}.")
    return " ".join((*told, *_weights(run, judged)))


def _weights(run: Run, judged: Sequence[Standing]) -> list[str]:
    """The shares of rare and mislabeled clients in the last aggregation, beside their shares of the images."""
    if all(client.weight is None for client in judged):
        return []
    sizes = dict(zip(run.about["clients"]["id"], run.about["clients"].get("size") or (), strict=False))
    how = "truly" if any(client.truth for client in judged) else "judged"
    told = []
    for kind in ("rare", "mislabeled"):
        own = [c for c in judged if (kind in (c.truth or "") if how == "truly" else c.group == kind)]
        if own:
            images = sum(sizes.get(client.client, 0) for client in own)
            beside = f" with {percent(images / sum(sizes.values()))} of the images" if images else ""
            weight = percent(sum(client.weight or 0.0 for client in own))
            told.append(f"the {how} {kind} have {weight} of the weight{beside}")
    return [f"In the last round, {listed(told)}."] if told else []


def _beside_the_truth(run: Run, judged: Sequence[Standing]) -> str:
    """How right the judgements are; nothing where the truth is not known."""
    if not all(client.truth for client in judged):
        return ""
    guilty = [client.client for client in judged if client.truth and "mislabeled" in client.truth]
    accused = _in(judged, "mislabeled")
    if not any(client.group for client in judged):
        return sentence(f"truly mislabeled {plural(guilty, 'is', 'are')} {clients(guilty)}")
    missed = [name for name in guilty if name not in accused]
    wrong = [client for client in judged if client.group == "mislabeled" and client.client not in guilty]
    told = ["The truth is known here; it was not used for judging.", _found(guilty, missed, wrong)]
    if missed:
        told.append(sentence(f"missed: {clients(missed)}"))
    if wrong:
        kinds = {kind: [client.client for client in wrong if client.truth == kind] for kind in ("common", "rare")}
        told.append(
            sentence("wrongly accused: " + listed([f"{clients(c)} (truly {k})" for k, c in kinds.items() if c]))
        )
    return " ".join((*told, *_rare_beside_the_truth(run, judged)))


def _found(guilty: Sequence[str], missed: Sequence[str], wrong: Sequence[Standing]) -> str:
    if not guilty:
        return "Nobody is mislabeled" + ("." if wrong else ", and nobody is accused.")
    if not missed and not wrong:
        return "All the mislabeled are found, and nobody else is accused."
    found = len(guilty) - len(missed)
    return f"Of {counted(len(guilty), 'mislabeled client')}, {found} {'is' if found == 1 else 'are'} found."


def _rare_beside_the_truth(run: Run, judged: Sequence[Standing]) -> list[str]:
    rare = [client for client in judged if client.truth == "rare"]
    if not rare or run.identify is None:
        return []
    found = sum(client.group == "rare" for client in rare)
    others = sum(client.group == "rare" and client.truth != "rare" for client in judged)
    also = f", and so {plural([''] * others, 'is', 'are')} {counted(others, 'other')}" if others else ""
    return [f"Of {counted(len(rare), 'truly rare client')}, {found} {'is' if found == 1 else 'are'} judged rare{also}."]


def _left_out(run: Run) -> str:
    """Whose answers the last round did not use, and why."""
    left = run.rounds[-1].get("left_out") or {}
    by_reason: dict[str, list[str]] = defaultdict(list)
    for client, reason in left.items():
        by_reason[reason].append(client)
    told = [f"{clients(names)} ({reason})" for reason, names in by_reason.items()]
    return sentence(f"of round {run.rounds[-1]['round']}: {listed(told)}") if told else ""


def _not_known(run: Run, judged: Sequence[Standing], seeds: int) -> str:
    rule, somebody = run.identify, any(client.group for client in judged)
    told = {
        f"How it ends: {len(run.rounds)} of {run.settings.rounds} rounds have been played.": not run.is_done,
        "How good the model is: no round has been tested.": not run.last(),
        "Whether the judgements are right: the truth is not recorded.": somebody and judged[0].truth is None,
        ALWAYS: somebody and rule is not None and rule.rule == "mixture" and rule.mixture.min_margin is None,
        ALIKE: somebody,
        "How much of this is chance: the method was run with one seed.": seeds == 1,
    }
    return " ".join(text for text, applies in told.items() if applies)


def _best(results: Results) -> str:
    """Which method serves its worst test group best, and how many cannot be told from it."""
    if len(results.rows) < 2:
        return ""
    worst = {row.method: row.scores[results.accuracy].worst for row in results.rows}
    method = max(worst, key=lambda name: worst[name].mean)
    best = worst[method]
    text = f"Of {len(worst)} methods, {method} serves it best, with {best.mean:.2f} ± {best.std:.2f} %."
    near = sum(name != method and best.mean - own.mean <= best.std for name, own in worst.items())
    if near:
        text += f" {counted(near, 'other')} {'is' if near == 1 else 'are'} within that deviation of it."
    return text


def _agreement(runs: Sequence[Run]) -> str:
    """Whom all runs accuse that judge anybody, and whom only some."""
    judging = [judged for judged in map(standings, runs) if any(client.group for client in judged)]
    if len(judging) < 2:
        return ""
    accused = Counter(name for judged in judging for name in _in(judged, "mislabeled"))
    everybody = [name for name, number in accused.items() if number == len(judging)]
    whom = f"All of them accuse {clients(everybody)}." if everybody else "Nobody is accused by all of them."
    told = [f"{len(judging)} runs judge.", whom]
    some = [f"{name} ({number})" for name, number in accused.most_common() if number < len(judging)]
    if some:
        told.append(sentence(f"only some accuse {clients(some)}; in brackets, how many"))
    return " ".join(told)
