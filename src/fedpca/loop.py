"""The round loop: the server's half of a round, for any method and wherever the clients are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fedpca.core import (
    NOBODY,
    ClientId,
    Clients,
    Diagnosis,
    Method,
    Order,
    Outcome,
    Params,
    Recipe,
    Report,
    Server,
    Vectors,
    When,
)
from fedpca.screening import Limits, asked_for, claims_of, is_finite, usable_reports, usable_updates, without_spoilers

if TYPE_CHECKING:
    from torch import Tensor


def play(method: Method, clients: Clients, server: Server, rounds: int) -> Iterator[Server]:
    """The server after each round, from where it stands up to `rounds`; a saved server goes on as if never stopped.

    >>> from fedpca import Experiment, InProcess, Server, Workers, build, federate, load, method_of, params_of, play
    >>> experiment = Experiment(data={"clients": 4})
    >>> federation, method = federate(experiment, load(experiment.data)), method_of(experiment)
    >>> net = build("mlp", federation.shape, len(federation.classes), seed=0)
    >>> clients = InProcess(method, federation.shards, Workers([net]), seed=0)
    >>> [server.round for server in play(method, clients, Server(params_of(net)), rounds=2)]
    [1, 2]
    """
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
        replies = clients.report(server.params, _orders(cohort, when, diagnosis, server))
        diagnosis = recipe.diagnose(diagnosis, usable_reports(replies, claims_of(recipe.report), left_out), when)
        cohort = [client for client in cohort if client not in left_out]
    before = replace(server, diagnosis=diagnosis)
    outcome, reports = _train(recipe, clients, before, _orders(cohort, when, diagnosis, server), left_out)
    diagnosis = with_outcome(recipe.diagnose(diagnosis, reports, when), outcome)
    params = replace(outcome.params, lengths=server.params.lengths)
    shown = {name: vector for name, vector in outcome.shown.items() if not _is_part(vector, params)}
    kept = (outcome.memory, shown, outcome.shown_to, outcome.bounded)
    return Server(params, when.round, diagnosis, outcome.weights, left_out, *kept)


def _train(
    recipe: Recipe, clients: Clients, server: Server, orders: Mapping[ClientId, Order], left_out: dict[ClientId, str]
) -> tuple[Outcome, Mapping[ClientId, Report]]:
    """What the aggregation makes of the ordered clients' updates, and what they say beside them."""
    fold, reports = recipe.aggregate(server), {}
    limits = Limits(server.params, claims_of(recipe.train), clients.sizes)
    for client, update in usable_updates(clients.train(server.params, orders), limits, left_out):
        fold.add(client, update)
        reports[client] = asked_for(update.report, limits.claims)
    outcome = fold.finish()
    if is_finite(outcome.params):
        return outcome, reports
    updates = dict(usable_updates(clients.train(server.params, orders), limits, {}))  # again: the same ones are sent
    outcome = without_spoilers(recipe.aggregate, server, updates, left_out)
    return outcome, {client: report for client, report in reports.items() if client in updates}


def with_outcome(diagnosis: Diagnosis, outcome: Outcome) -> Diagnosis:
    """The same opinions, with each client's share in this round's aggregation, and what the rule noted."""
    known, weights = dict(diagnosis), outcome.weights or {}
    for client, weight in weights.items():
        known[client] = known.get(client, NOBODY).with_weight(weight)
    for client, notes in outcome.notes.items():
        verdict = known.get(client, NOBODY)
        known[client] = replace(verdict, notes={**verdict.notes, **notes})
    for side, own in outcome.sides.items():
        before = {client: verdict.sides.get(side, NOBODY) for client, verdict in known.items()}
        for client, verdict in with_outcome(before, own).items():
            whole = known.get(client, NOBODY)
            known[client] = replace(whole, sides={**whole.sides, side: verdict})
    return known


def _is_part(vector: Tensor, params: Params) -> bool:
    """Whether a vector is one of the new global state: clients get that anyway, and need not get it twice."""
    return any(vector is own for own in params.vectors)


def _orders(cohort: Iterable[ClientId], when: When, diagnosis: Diagnosis, server: Server) -> dict[ClientId, Order]:
    return {client: Order(*when, diagnosis.get(client, NOBODY), _shown_to(client, server)) for client in cohort}


def _shown_to(client: ClientId, server: Server) -> Vectors:
    """What everybody sees, the same mapping for all who see no more, and what this client alone sees."""
    own = server.shown_to.get(client)
    return {**server.shown, **{name: server.memory[key] for name, key in own.items()}} if own else server.shown
