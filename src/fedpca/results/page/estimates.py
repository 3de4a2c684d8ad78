"""Sentences on estimated shares of wrong labels: how many, how sure, of whom nobody can tell, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fedpca.parts.server.wrong_labels import MIN_TO_COMPARE
from fedpca.results.page.words import clients, enumeration, plural, quantity, sentence
from fedpca.results.read.clients import ClientState, has_estimates, known_of, reference_of
from fedpca.results.read.runs import Run

MAX_ESTIMATES = 6  # written out in a sentence; the clients' table has all
AT_LEAST = (
    "Each share is at least that: errors that most clients share do not show, since the model learns them as right."
)
FEW_CLIENTS, NOT_LEARNED = "too few clients", "nothing to compare with"
FEW_IMAGES = "too few images"  # whoever has enough can be told: errors of both measures go to zero with their number


def rule_words(run: Run) -> str:
    """From what on a client is judged mislabeled; nothing if the run does not say."""
    if run.identify is None:
        return ""
    auto = run.identify.auto
    clear = f"is at least {auto.share:g} and exceeds zero by {auto.certainty:g} standard errors"
    return (
        f"A client is judged mislabeled once its estimate {clear} in {quantity(auto.enter, 'round')} in a row, "
        f"and no longer after {quantity(auto.leave, 'round')} in a row without that."
    )


def share_words(client: ClientState) -> str:
    """0.34 of its labels (0.22 to 0.47), or what is known if there is nothing to compare with."""
    if client.suspicion is None:
        return f"at most {client.high:.2f} of its labels"
    return f"{client.suspicion:.2f} of its labels ({_interval(client)})"


def how_sure(run: Run, judged: Sequence[ClientState]) -> str:
    """The estimates of whoever is judged mislabeled, else the largest."""
    mislabeled = [client for client in judged if client.group == "mislabeled" and client.answer]
    said = _estimates(mislabeled) if mislabeled else _largest(judged)
    return " ".join(text for text in (said, _unconfirmed(run, mislabeled)) if text)


def _estimates(mislabeled: Sequence[ClientState]) -> str:
    known = sorted(mislabeled, key=lambda client: client.suspicion or 0.0, reverse=True)
    said = [f"client {client.client}: {share_words(client)}" for client in known[:MAX_ESTIMATES]]
    others = [f"{quantity(len(known) - len(said), 'other')} in the table of clients"] * (len(known) > len(said))
    return f"Wrong by estimate, at least (in brackets the 95 % interval): {enumeration([*said, *others])}."


def _largest(judged: Sequence[ClientState]) -> str:
    """The most that is estimated of anybody of whom it can be told."""
    known = [client for client in judged if client.suspicion is not None and not client.cannot_tell]
    if not known:
        return ""
    most = max(known, key=lambda client: (client.suspicion or 0.0, client.high or 0.0))
    told = "of those who can be told " * any(client.cannot_tell for client in judged)
    found = f"{most.suspicion:.2f} (client {most.client}; 95 % interval {_interval(most)})"
    return f"The largest estimated share of wrong labels {told}is {found}."


def _interval(client: ClientState) -> str:
    return f"{client.low:.2f} to {client.high:.2f}"


def _unconfirmed(run: Run, mislabeled: Sequence[ClientState]) -> str:
    """Who is judged mislabeled though the last round alone does not say so."""
    names = [client.client for client in mislabeled if client.answer != "mislabeled"]
    if not names:
        return ""
    leave = f"; after {quantity(run.identify.auto.leave, 'such round')} in a row" if run.identify else ""
    no_longer = f"{leave} {plural(names, 'it is', 'they are')} no longer judged so" if leave else ""
    return sentence(f"the last round alone does not confirm it of {clients(names)}{no_longer}")


def cannot_be_told(run: Run, judged: Sequence[ClientState]) -> str:
    """Of whom nobody can tell, with the reasons; nothing if there is nobody."""
    sizes = dict(zip(names_of(judged), known_of(run, "size"), strict=True))
    said = [_why(reason, own, sizes) for reason, own in untold(judged).items()]
    return f"Cannot be told: {'; '.join(said)}." if said else ""


def untold(judged: Sequence[ClientState]) -> Mapping[str, list[ClientState]]:
    """Those of whom nobody can tell, by the reason."""
    compared = sum(client.answer is not None for client in judged)
    found: dict[str, list[ClientState]] = defaultdict(list)
    for client in judged:
        if client.cannot_tell and client.suspicion is None:
            found[FEW_CLIENTS if compared < MIN_TO_COMPARE else NOT_LEARNED].append(client)
        elif client.cannot_tell:
            found[FEW_IMAGES].append(client)
    return found


def _why(reason: str, own: Sequence[ClientState], sizes: Mapping[str, int | None]) -> str:
    """client c (too few images: 10; 0.00 to 0.62 of its labels may be wrong)."""
    names = clients(names_of(own))
    if reason == FEW_CLIENTS:
        return f"{names} ({reason}: labels can be compared among {MIN_TO_COMPARE} or more)"
    if reason == NOT_LEARNED:
        return f"{names} ({reason}: the model does not predict the labels of enough clients yet)"
    images = [str(size) for name in names_of(own) if (size := sizes[name]) is not None]
    few = f": {enumeration(images, MAX_ESTIMATES)}" if images else ""
    shares = enumeration([_interval(client) for client in own], MAX_ESTIMATES)
    return f"{names} ({reason}{few}; {shares} of {plural(names_of(own), 'its', 'their')} labels may be wrong)"


def names_of(own: Sequence[ClientState]) -> list[str]:
    """Their names."""
    return [client.client for client in own]


def advice(judged: Sequence[ClientState]) -> str:
    """What tells of those of whom nobody can tell; nothing if there is nobody."""
    by_reason = untold(judged)
    said = []
    if own := by_reason.get(FEW_CLIENTS, []):
        more = f"let {MIN_TO_COMPARE} or more clients take part"
        said.append(f"{more}, or have {_each(own)} re-read a random sample of its labels")
    if by_reason.get(NOT_LEARNED):
        said.append("play more rounds, or train a model that learns these labels")
    if own := by_reason.get(FEW_IMAGES, []):
        said.append(f"only more images, or reading labels again, can tell of {clients(names_of(own))}")
    return " ".join(map(sentence, said))


def _each(own: Sequence[ClientState]) -> str:
    return plural(names_of(own), "this site", "each site")


def how_clear(run: Run, judged: Sequence[ClientState]) -> str:
    """What the number means, from what on it counts, and what labels were compared with."""
    meaning = (
        "The number is the estimated share of a client's labels that are wrong, beyond that of the clients it is "
        "compared with; in brackets its 95 % interval."
    )
    treated = "Whoever cannot be told is trained like a common client." * any(c.cannot_tell for c in judged)
    soon = [c.client for c in judged if c.answer == "mislabeled" and c.group != "mislabeled"]
    not_yet = sentence(f"{clients(soon)} {plural(soon, 'is', 'are')} so by the last round, but not long enough yet")
    said = (
        meaning,
        rule_words(run),
        not_yet if soon else "",
        treated,
        reference_words(run),
        AT_LEAST * knows_shares(judged),
    )
    return " ".join(text for text in said if text)


def knows_shares(judged: Sequence[ClientState]) -> bool:
    """Whether a share of wrong labels is estimated of anybody."""
    return any(client.answer and client.suspicion is not None for client in judged)


def reference_words(run: Run) -> str:
    """What the labels were compared with, in one sentence."""
    level = reference_of(run)
    if not level:
        return "There was nothing to compare labels with in the last round."
    return (
        f"Labels were compared with those of the clients that agree best with the model: slope {level['slope']:.2f} "
        f"of labels on predictions, {level['agreement']:.2f} of labels as predicted."
    )


def too_few_for_rare(run: Run, judged: Sequence[ClientState]) -> str:
    """Why nobody is called rare, if there are too few clients to tell."""
    if not has_estimates(run) or run.identify is None:
        return ""
    innocent, needed = sum(c.answer not in (None, "mislabeled") for c in judged), run.identify.auto.min_clients
    if innocent >= needed:
        return ""
    there_are = f"there {'is' if innocent == 1 else 'are'} {quantity(innocent, 'client')} not found mislabeled"
    return f"Nobody is called rare, since there are too few clients to tell: {there_are}, and {needed} are needed."
