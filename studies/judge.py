"""Judges the clients of federations of many kinds by a rule that leads: `python -m studies.judge OUT [--search]`.

Each federation of `studies.kinds` is trained by FedAvg among the clients that the rule does not judge mislabeled:
whoever it judges is dropped, rightly or not. Then `python -m studies.judge OUT --table` prints how often the judgement
is right, over the last ten rounds:

* nobody mislabeled: the share of federations in which nobody is judged so in any of these rounds
* recall: of the client-rounds of mislabeled clients whose share of wrong labels exceeds the others' median by 0.2
* where told: the same without the client-rounds that are answered "cannot tell"
* precision: of all client-rounds judged mislabeled, those of clients that the scenario made mislabeled
* cannot tell: client-rounds with that answer
* error and coverage: of the estimated share of wrong labels, and of its 95 % interval, over all client-rounds
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

from fedpca.core import Verdict
from fedpca.parts.server.diagnose import InARow
from fedpca.parts.server.identify import Finding
from fedpca.results.read.clients import column
from fedpca.results.read.runs import Run, find_runs
from fedpca.runs.cell import cells, is_done
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.base import Table
from studies.jobs import work_through
from studies.kinds import HELD_OUT, KINDS, SEARCH, Case, cases, experiment

Thing = TypeVar("Thing")
LAST, BAR = 10, 0.2
METHOD = "fedavg+d"  # what differs is the judgement alone: no lift of the rare, no sharpness
RULES: dict[str, Table] = {"auto": {"identify": "auto"}, "slope": {"identify": "slope"}, "paper": {}}


@dataclass(frozen=True)
class Judged:
    """One client in one of the last rounds."""

    wrong: float  # share of its labels, in truth
    excess: float  # over the median of the clients that the scenario did not make mislabeled
    mislabeled: bool  # as the scenario made it
    judged: bool
    answer: str | None
    estimate: tuple[float, float, float] | None  # with the ends of its interval


def play(case: Case, out: Path, rule: str) -> str:
    """Trains one federation by one rule, unless that was done before."""
    update = {"methods": (METHOD,), "method": {METHOD: RULES[rule]}}
    chosen = experiment(case, out / "data").model_copy(update=update)
    (cell,) = cells(chosen, out / rule / case.name)
    if not is_done(cell):
        dataset, federation = prepare(chosen)
        run_cell(cell, dataset, federation, 1, lambda cell, line: None)
    return f"{rule}: {case.name}"


def client_rounds(run: Run) -> list[list[Judged]]:
    """What the last rounds of a run say of each client, round by round."""
    known = run.about["clients"]
    wrong = [count / size for count, size in zip(known["wrong_labels"], known["size"], strict=True)]
    made = set(run.about["mislabeled"])
    usual = median([share for client, share in zip(known["id"], wrong, strict=True) if client not in made])
    found = []
    for line in run.rounds[-LAST:]:
        names = ("group", "answer", "suspicion", "suspicion_low", "suspicion_high")
        rows = zip(known["id"], wrong, *(column(line, name, known["id"]) for name in names), strict=True)
        found.append(
            [
                Judged(share, share - usual, client in made, group == "mislabeled", answer, _estimate(*ends))
                for client, share, group, answer, *ends in rows
            ]
        )
    return found


def _estimate(share: float | None, low: float | None, high: float | None) -> tuple[float, float, float] | None:
    return None if share is None or low is None or high is None else (share, low, high)


def figures(runs: Sequence[Run]) -> dict[str, str]:
    """The table's columns for some runs."""
    rounds = [client_rounds(run) for run in runs]
    clean = [own for run, own in zip(runs, rounds, strict=True) if not run.about["mislabeled"]]
    every = [one for own in rounds for line in own for one in line]
    made = [one for one in every if one.estimate]
    return {
        "federations": str(len(runs)),
        "nobody mislabeled": _share(clean, lambda own: not any(one.judged for line in own for one in line)),
        "recall": _share([one for one in every if one.mislabeled and one.excess >= BAR], lambda one: one.judged),
        "where told": _share(
            [one for one in every if one.mislabeled and one.excess >= BAR and one.answer != "cannot tell"],
            lambda one: one.judged,
        ),
        "precision": _share([one for one in every if one.judged], lambda one: one.mislabeled),
        "cannot tell": _share([one for one in every if one.answer], lambda one: one.answer == "cannot tell"),
        "error": f"{fmean(abs(one.estimate[0] - one.wrong) for one in made if one.estimate):.3f}" if made else "-",
        "coverage": _share(made, lambda one: bool(one.estimate and _holds(one.estimate, one.wrong))),
        "width": f"{fmean(one.estimate[2] - one.estimate[1] for one in made if one.estimate):.2f}" if made else "-",
    }


def _holds(estimate: tuple[float, float, float], wrong: float) -> bool:
    return estimate[1] - 1e-9 <= wrong <= estimate[2] + 1e-9


def _share(things: Sequence[Thing], holds: Callable[[Thing], bool]) -> str:
    return f"{fmean(map(holds, things)):.3f} ({len(things)})" if things else "-"


def table(out: Path, rule: str, draws: tuple[int, ...]) -> None:
    """Figures by kind of data, by noise, and over all."""
    runs = {run.folder.parent.parent.name: run for run in find_runs([out / rule]) if run.is_done}
    places = {case.name: case for case in cases(draws)}
    known = {name: run for name, run in runs.items() if name in places}
    by_kind, by_noise = defaultdict(list), defaultdict(list)
    for name, run in known.items():
        by_kind[places[name].kind.family].append(run)
        by_noise[places[name].noise].append(run)
    _print("kind of data", {**{kind.family: by_kind[kind.family] for kind in KINDS}, "all": list(known.values())})
    _print("noise", by_noise)


def _print(what: str, groups: dict[str, list[Run]]) -> None:
    rows = {name: figures(runs) for name, runs in groups.items() if runs}
    heads = list(next(iter(rows.values()), {}))
    print(f"| {what} | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(row.values())} |")
    print()


def hysteresis(out: Path, rule: str) -> None:
    """What entering after so many rounds in a row, and leaving after so many, does to the recorded answers."""
    runs = [run for run in find_runs([out / rule]) if run.is_done]
    print("| enter, leave | innocents judged, client-rounds | recall | changes of a client's group after the first |")
    print("|---|---|---|---|")
    for enter, leave in ((1, 1), (2, 2), (2, 3), (3, 3), (3, 5)):
        wrongly, found, changes = 0, [], 0
        for run in runs:
            known, made = run.about["clients"]["id"], set(run.about["mislabeled"])
            columns = [column(line, "answer", known) for line in run.rounds if line["clients"].get("answer")]
            for client, says in zip(known, zip(*columns, strict=True), strict=True):
                groups = _settled(says, InARow(enter, leave))
                wrongly += sum(groups) if client not in made else 0
                found += groups[-LAST:] if client in made else []
                changes += max(0, sum(one != two for one, two in pairwise(groups)) - 1)
        print(f"| {enter}, {leave} | {wrongly} | {fmean(found):.3f} | {changes} |")


def _settled(says: Sequence[str], settle: InARow) -> list[bool]:
    verdict, judged = Verdict(), []
    for answer in says:
        verdict = settle(verdict, Finding("mislabeled" if answer == "mislabeled" else "common", 0.0))
        judged.append(verdict.group == "mislabeled")
    return judged


def misses(out: Path, rule: str) -> Iterable[str]:
    """Federations in which an innocent client is judged, or a mislabeled one is not, with the numbers of both."""
    for run in find_runs([out / rule]):
        every = [one for line in client_rounds(run) for one in line]
        wrongly = sum(one.judged and not one.mislabeled for one in every)
        missed = sum(one.mislabeled and one.excess >= BAR and not one.judged for one in every)
        if wrongly or missed:
            yield f"{run.folder.parent.parent.name}: {wrongly} wrongly, {missed} missed of {len(every)} client-rounds"


def main() -> None:
    """Trains what is missing, or prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rule", choices=RULES, default="auto")
    parser.add_argument("--search", action="store_true", help="the draw that decisions are made on")
    parser.add_argument("--draws", type=int, nargs="+", help="other draws")
    parser.add_argument("--only", default="", help="federations whose name has this in it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--hysteresis", action="store_true")
    options = parser.parse_args()
    draws = tuple(options.draws or (SEARCH if options.search else HELD_OUT))
    if options.misses:
        print("\n".join(misses(options.out, options.rule)))
    if options.table:
        table(options.out, options.rule, draws)
    if options.hysteresis:
        hysteresis(options.out, options.rule)
    if options.table or options.misses or options.hysteresis:
        return
    chosen = [case for case in cases(draws) if options.only in case.name]
    work_through(partial(play, rule=options.rule), chosen, options.out, options.jobs)


if __name__ == "__main__":
    main()
