"""What every run says of every client, for scripts and spreadsheets: one line each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from fedpca.results.read.clients import client_states, clients_of, known_of, truth
from fedpca.results.read.runs import Run

RUN = ("experiment", "setting", "method", "seed", "round")
ESTIMATE = ("suspicion", "suspicion_low", "suspicion_high", "answer")
CLIENT = ("client", "images", "judgement", "since_round", *ESTIMATE, "weight")
TRUTH = ("truly", "wrong_labels")  # only where somebody knows


def clients_as_csv(runs: Sequence[Run]) -> str:
    """Every client of every run after its last round; what a run does not record is empty."""
    with_truth = any(truth(run) for run in runs)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*RUN, *runs[0].distinguishing, *CLIENT, *(TRUTH if with_truth else ())])
    for run in runs:
        writer.writerows(_with_truth(run) if with_truth else _lines(run))
    return out.getvalue()


def _lines(run: Run) -> Iterator[list[object]]:
    """A line for each client, without the truth."""
    last = run.rounds[-1]
    place: list[object] = [run.settings.name, run.about.get("setting"), run.label(), run.seed, last["round"]]
    place += run.distinction().values()
    sizes = known_of(run, "size")
    for size, state in zip(sizes, client_states(run), strict=True):
        estimate = [state.suspicion, state.low, state.high, state.answer]
        yield [*place, state.client, size, state.group, state.since, *estimate, state.weight]


def _with_truth(run: Run) -> Iterator[list[object]]:
    clients, kinds = clients_of(run), truth(run) or {}
    wrong = known_of(run, "wrong_labels") if kinds else [None] * len(clients)
    for client, number, line in zip(clients, wrong, _lines(run), strict=True):
        yield [*line, kinds.get(client), number]
