"""Trains with the paper's rule, the old `auto` and the present one side by side: `python -m studies.train OUT`.

Every twelfth federation of `studies.kinds` of a draw without decisions, and those with people's labels, under
three training seeds. Then `--table` prints how each rule judged and what its worst test group came to.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from fedpca.results.read.runs import Run, find_runs
from fedpca.runs.cell import cells, is_done
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.base import Table
from studies.jobs import work_through
from studies.kinds import HELD_OUT, Case, cases, experiment

METHOD, SEEDS, LAST, EVERY = "fedpca-d", (0, 1, 2), 10, 12
RULES: dict[str, Table] = {"paper": {}, "slope": {"identify": "slope"}, "auto": {"identify": "auto"}}


def chosen_cases() -> list[Case]:
    """Which federations are trained: of one draw every twelfth, and those of people's labels without rare clients."""
    every = list(cases(HELD_OUT[:1]))
    human = [case for case in every if case.noise.startswith("human") and not case.settings["rare"]]
    return [case for place, case in enumerate(every) if place % EVERY == 0 and case not in human] + human


def train(case: Case, out: Path) -> str:
    """Runs every rule and seed of one federation that is not finished."""
    base = experiment(case, out / "data")
    evaluation = base.evaluation.model_copy(update={"last_rounds": 5})
    prepared = None
    for rule, table in RULES.items():
        update = {"methods": (METHOD,), "method": {METHOD: table}, "seeds": SEEDS, "evaluation": evaluation}
        for cell in cells(base.model_copy(update=update), out / rule / case.name):
            if not is_done(cell):
                prepared = prepared or prepare(base)
                run_cell(cell, *prepared, 1, lambda cell, line: None)
    return case.name


def table(out: Path) -> None:
    """One line per federation: innocents judged and mislabeled missed per round by each rule, and worst accuracy."""
    found = {rule: _by_case(find_runs([out / rule])) for rule in RULES}
    print(f"| federation | {' | '.join(f'{rule}: wrongly, missed, worst ACC' for rule in RULES)} | auto - better |")
    print("|---|---|---|---|---:|")
    differences = []
    for case in chosen_cases():
        rows = {rule: own[case.name] for rule, own in found.items() if len(own.get(case.name, ())) == len(SEEDS)}
        if len(rows) == len(RULES):
            figures = {rule: _figures(runs) for rule, runs in rows.items()}
            differences.append(figures["auto"][2] - max(figures["paper"][2], figures["slope"][2]))
            shown = [f"{wrongly:.1f}, {missed:.1f}, {worst:.2f}" for wrongly, missed, worst in figures.values()]
            print(f"| {case.kind.name}, {case.noise} | {' | '.join(shown)} | {differences[-1]:+.2f} |")
    below = sum(own < -0.5 for own in differences)
    print(
        f"\n{len(differences)} federations; mean difference {fmean(differences):+.2f}; below by more than 0.5: {below}"
    )


def _by_case(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.is_done:
            found.setdefault(run.folder.parent.parent.name, []).append(run)
    return found


def _figures(runs: Sequence[Run]) -> tuple[float, float, float]:
    """Innocents judged and mislabeled missed per round over the last ten, and the worst group's accuracy in percent."""
    judged = [own for run in runs for line in run.rounds[-LAST:] if (own := line["identification"])]
    wrongly = fmean(own["accused_common"] + own["accused_rare"] for own in judged) if judged else 0.0
    number = len(runs[0].about["mislabeled"])
    missed = number * (1 - fmean(own["recall"] for own in judged)) if judged else float(number)
    worst = min(fmean(value for run in runs for value in run.last()[group]) for group in runs[0].last())
    return wrongly, missed, 100 * worst


def main() -> None:
    """Trains what is missing, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        table(options.out)
        return
    work_through(train, chosen_cases(), options.out, options.jobs)


if __name__ == "__main__":
    main()
