"""Sentences on how good the models are, and whom the aggregation serves."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedpca.results.page.estimates import too_few_for_rare
from fedpca.results.page.judgements import names_in
from fedpca.results.page.words import clients, enumeration, percent, plural, quantity, sentence
from fedpca.results.read.clients import ClientState
from fedpca.results.read.metrics import metric_words
from fedpca.results.read.runs import Run
from fedpca.results.tables.rows import Results


def rare_and_common(run: Run, judged: Sequence[ClientState]) -> str:
    """Who is judged rare, how the test groups fare, and what rare and mislabeled clients weigh."""
    rare, said = names_in(judged, "rare"), []
    if rare or (run.identify and any(client.group for client in judged)):
        nobody = too_few_for_rare(run, judged) if not rare else ""
        said.append(nobody or sentence(f"{clients(rare)} {plural(rare, 'is', 'are')} judged rare"))
    tested = run.last()
    if tested:
        number = len(next(iter(tested.values())))
        rounds = "the last tested round" if number == 1 else f"the last {number} tested rounds, on average"
        scores = [f"{percent(fmean(values))} on the {group} test images" for group, values in tested.items()]
        said.append(f"In {rounds}, the {metric_words(run.accuracy)} is {enumeration(scores)}.")
    return " ".join((*said, *_weights(run, judged)))


def _weights(run: Run, judged: Sequence[ClientState]) -> list[str]:
    """The shares of rare and mislabeled clients in the last aggregation, beside their shares of the images."""
    if all(client.weight is None for client in judged):
        return []
    sizes = dict(zip(run.about["clients"]["id"], run.about["clients"].get("size") or (), strict=False))
    how = "truly" if any(client.truth for client in judged) else "judged"
    said = []
    for kind in ("rare", "mislabeled"):
        own = [c for c in judged if (kind in (c.truth or "") if how == "truly" else c.group == kind)]
        if own:
            images = sum(sizes.get(client.client, 0) for client in own)
            beside = f" with {percent(images / sum(sizes.values()))} of the images" if images else ""
            weight = percent(sum(client.weight or 0.0 for client in own))
            said.append(f"the {how} {kind} have {weight} of the weight{beside}")
    return [f"In the last round, {enumeration(said)}."] if said else []


def best_method(results: Results) -> str:
    """Which method serves its worst test group best, and how many cannot be told from it."""
    if len(results.rows) < 2:
        return ""
    worst = {row.method: row.scores[results.accuracy].worst for row in results.rows}
    method = max(worst, key=lambda name: worst[name].mean)
    best = worst[method]
    verb = "serves it best, with" if len(results.groups) > 1 else "has the best:"
    text = f"Of {len(worst)} methods, {method} {verb} {best.mean:.2f} ± {best.std:.2f} %."
    near = sum(name != method and best.mean - own.mean <= best.std for name, own in worst.items())
    if near:
        text += f" {quantity(near, 'other')} {'is' if near == 1 else 'are'} within that deviation of it."
    return text
