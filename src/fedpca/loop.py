"""The round loop of the server, and the client's two halves of a round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite

import torch

from fedpca.core import (
    ClientId,
    Clients,
    Diagnosis,
    Failure,
    Method,
    Order,
    Outcome,
    Params,
    Recipe,
    Report,
    Server,
    Site,
    Update,
    When,
)
from fedpca.models.flat import at_once, fault, sound
from fedpca.parts.client.report import PerformanceAndCapacity
from fedpca.parts.client.select import ConfidentOfTheMislabeled
from fedpca.parts.client.train import LocalTraining
from fedpca.parts.server.diagnose import NOBODY
from fedpca.parts.sides import of_side
from fedpca.simulate.batched import train_team


def play(method: Method, clients: Clients, server: Server, rounds: int) -> Iterator[Server]:
    """The server after each round, from where it stands up to `rounds`; a saved server goes on as if never stopped."""
    while server.round < rounds:
        stage, begins = method.at(server.round + 1)
        if begins:
            server = replace(server, diagnosis=stage.enter(server.diagnosis))
        server = play_round(stage.recipe, clients, server, rounds)
        yield server


def play_round(recipe: Recipe, clients: Clients, server: Server, rounds: int) -> Server:
    """The server after one more round: report, diagnose, select, train, aggregate."""
    when, diagnosis = When(server.round + 1, rounds), server.diagnosis
    cohort = recipe.cohort(clients.ids, when.round)
    left_out: dict[ClientId, str] = {}
    if recipe.report is not None:
        replies = clients.report(server.params, _orders(cohort, when, diagnosis, server.sides))
        diagnosis = recipe.diagnose(diagnosis, _reports(replies, left_out), when)
        cohort = [client for client in cohort if client not in left_out]
    fold, reports = recipe.aggregate(server.params, diagnosis), {}
    answers = clients.train(server.params, _orders(cohort, when, diagnosis, server.sides))
    for client, update in _updates(answers, server.params, left_out):
        fold.add(client, update)
        reports[client] = update.report
    outcome = fold.finish()
    diagnosis = settled(recipe.diagnose(diagnosis, reports, when), outcome)
    params = replace(outcome.params, lengths=server.params.lengths)
    sides = {name: side.params for name, side in outcome.sides.items() if side.shown}
    return Server(params, when.round, diagnosis, outcome.weights, left_out, sides)


def settled(diagnosis: Diagnosis, outcome: Outcome) -> Diagnosis:
    """The same opinions, with each client's share in this round's aggregation, and what the rule noted."""
    known, weights = dict(diagnosis), outcome.weights or {}
    for client, weight in weights.items():
        known[client] = known.get(client, NOBODY).having(weight=weight)
    for client, notes in outcome.notes.items():
        verdict = known.get(client, NOBODY)
        known[client] = replace(verdict, notes={**verdict.notes, **notes})
    for side, own in outcome.sides.items():
        for client, verdict in settled(of_side(known, side), own).items():
            whole = known.get(client, NOBODY)
            known[client] = replace(whole, sides={**whole.sides, side: verdict})
    return known


@torch.no_grad()
def answer_report(recipe: Recipe, site: Site) -> Report:
    """What a client says about its data; the site's model holds the global weights, in eval mode."""
    assert recipe.report is not None, "a recipe without a report asks for none"
    return recipe.report(site)


def answer_train(recipe: Recipe, site: Site) -> Update:
    """What a client sends after local training; it changes the site's model."""
    with torch.no_grad():
        samples = recipe.select(site)
    return recipe.train(site, samples)


@torch.no_grad()
def answer_report_together(recipe: Recipe, sites: Sequence[Site]) -> list[Report]:
    """What each of several clients says; they share the model, which holds the global weights."""
    assert isinstance(recipe.report, PerformanceAndCapacity), "see `can_report_together`"
    return recipe.report.of_many(sites)


def answer_train_together(recipe: Recipe, sites: Sequence[Site]) -> list[Update]:
    """What each of several clients sends, trained as one; they share the model, which holds the global weights."""
    assert isinstance(recipe.train, LocalTraining), "see `can_team`"
    with torch.no_grad():
        select = recipe.select
        many = select.of_many(sites) if type(select) is ConfidentOfTheMislabeled else map(select, sites)
        samples = list(many)
    return train_team(recipe.train, sites[0].net, sites, samples)


def _orders(
    cohort: Iterable[ClientId], when: When, diagnosis: Diagnosis, sides: Mapping[str, Params]
) -> dict[ClientId, Order]:
    return {client: Order(*when, diagnosis.get(client, NOBODY), sides) for client in cohort}


def _reports(
    replies: Iterable[tuple[ClientId, Report | Failure]], left_out: dict[ClientId, str]
) -> Mapping[ClientId, Report]:
    """The usable reports; who gave none, or one with a number that is not finite, is noted in `left_out`."""
    reports = {}
    for client, reply in replies:
        if isinstance(reply, Failure):
            left_out[client] = reply.reason
        elif reason := _strange(reply):
            left_out[client] = reason
        else:
            reports[client] = reply
    return reports


def _strange(report: Report) -> str | None:
    """Which number of a report is not finite, or None."""
    for name, value in report.items():
        if not (all(map(isfinite, value)) if isinstance(value, list) else isfinite(value)):
            return f"its report says {name} = {value}"
    return None


def _updates(
    replies: Iterator[tuple[ClientId, Update | Failure]], like: Params, left_out: dict[ClientId, str]
) -> Iterator[tuple[ClientId, Update]]:
    """The usable updates; whose is not, and why, is noted in `left_out`. Small ones are looked at several at a time."""
    while some := list(islice(replies, at_once(like))):
        states = [reply.params for _, reply in some if isinstance(reply, Update) and reply.params]
        clear = len(states) > 1 and sound(states, like)
        for client, reply in some:
            if reason := _fault(reply, None if clear else like):
                left_out[client] = reason
            elif isinstance(reply, Update):
                yield client, reply


def _fault(reply: Update | Failure, like: Params | None) -> str | None:
    """Why an answer cannot be used, or None; without `like` its state is known to be sound."""
    if isinstance(reply, Failure):
        return reply.reason
    if reply.size < 0 or (reply.size > 0) != (reply.params is not None) or not 0 <= reply.reliability <= 1 + 1e-9:
        sent = "weights" if reply.params else "no weights"
        return f"it sent {sent}, size {reply.size}, reliability {reply.reliability}"
    return _strange(reply.report) or (fault(reply.params, like) if reply.params and like else None)
