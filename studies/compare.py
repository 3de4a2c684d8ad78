"""Compares rules of identification on recorded reports: `python -m studies.compare RECORDINGS`.

Rules see the rounds after the warm-up, each with its own way to settle. Figures are over the last ten rounds:

* nobody judged: of the federations without mislabeled clients, those in which nobody is judged in any of these rounds
* recall: of the client-rounds of mislabeled clients whose share of wrong labels exceeds the others' median by 0.2
* precision: of all client-rounds judged mislabeled, those of clients that the scenario made mislabeled
* error: of the estimated share of wrong labels, the mean over all client-rounds of rules that estimate one
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median, median_low

from fedpca.core import ClientId, Diagnose, Diagnosis, Estimate, Report, Verdict, When
from fedpca.methods.define import Plan
from fedpca.methods.identify import AutoSettings, IdentifySettings, identification
from fedpca.parts.server.diagnose import InARow, NameGroups
from fedpca.parts.server.identify import Finding, Findings
from fedpca.parts.server.wrong_labels import (
    Excess,
    LabelNumbers,
    by_agreement,
    by_slope,
    label_numbers,
    reference_of,
)
from studies.judge import BAR, LAST
from studies.record import ROUNDS

Reports = Mapping[ClientId, Report]
Measure = Callable[[Reports], Mapping[ClientId, Excess]]  # nobody's: nothing to compare with
AUTO = AutoSettings()


@dataclass(frozen=True)
class ByMeasures:
    """Mislabeled are those whom every measure shows to be, as `auto` has it with two of them."""

    measures: tuple[Measure, ...]
    min_share: float = AUTO.share
    certainty: float = AUTO.certainty

    def __call__(self, reports: Reports) -> Findings | None:
        found = [measure(reports) for measure in self.measures]
        return {c: self._finding([own[c] for own in found]) for c in found[0] if all(c in own for own in found)}

    def _finding(self, found: Sequence[Excess]) -> Finding:
        sure = all(own.share >= self.min_share and own.share > self.certainty * own.error for own in found)
        shares = [min(1.0, max(0.0, own.share)) for own in found]
        share = fmean(shares) if sure else min(shares)
        estimate = Estimate(share, 0.0, 1.0, "mislabeled" if sure else "not mislabeled")
        return Finding("mislabeled" if sure else "common", share, estimate)


def against_reference(
    reports: Reports, measure: Callable[..., Excess], agreement: str = "agreement"
) -> dict[str, Excess]:
    """What one of `auto`'s measures shows of each client; `agreement` says which one is taken for that."""
    numbers = {c: _with(own, report, agreement) for c, report in reports.items() if (own := label_numbers(report))}
    reference = reference_of(numbers, AUTO.min_learned)
    return {c: measure(own, reference) for c, own in numbers.items()} if reference else {}


def _with(numbers: LabelNumbers, report: Report, agreement: str) -> LabelNumbers:
    return replace(numbers, agreement=_number(report, agreement))


def above_median(reports: Reports, name: str) -> dict[str, Excess]:
    """By how much each client's number exceeds that of the median client; the error is that of a share."""
    values = {c: _number(report, name) for c, report in reports.items()}
    usual = median_low(values.values())
    return {c: Excess(value - usual, _error(value, _number(reports[c], "images"))) for c, value in values.items()}


def _error(share: float, images: float) -> float:
    near = (min(1.0, max(0.0, share)) * images + 1) / (images + 2)  # so that nobody's error is zero
    return float((near * (1 - near) / images) ** 0.5)


def _number(report: Report, name: str) -> float:
    value = report[name]
    assert isinstance(value, float)
    return value


BY_SLOPE: Measure = partial(against_reference, measure=by_slope)
BY_AGREEMENT: Measure = partial(against_reference, measure=by_agreement)
BY_LEFT_OUT: Measure = partial(against_reference, measure=by_agreement, agreement="left_out_agreement")
BY_JOINT: Measure = partial(above_median, name="confident_errors")
BY_UNIFORM: Measure = partial(above_median, name="uniform_share")
BY_GAP: Measure = partial(above_median, name="calibration_gap")


@dataclass(frozen=True)
class Rule:
    """What judges, whether it estimates shares of wrong labels, and which numbers it is shown under other names."""

    judge: Diagnose
    estimates: bool = True
    shown: tuple[tuple[str, str], ...] = ()


def shipped(rule: str, **settings: float) -> Diagnose:
    """A rule of the package; nobody is called rare by `auto`, which takes most of its time and does not count here."""
    own = {**settings, **({"min_clients": 10**9} if rule == "auto" else {})}
    return identification(Plan(ROUNDS), IdentifySettings.model_validate({"rule": rule, rule: own}))[1]


def measured(*measures: Measure, **settings: float) -> Rule:
    """A rule by these measures, settled as `auto` is."""
    return Rule(NameGroups(ByMeasures(measures, **settings), InARow(AUTO.enter, AUTO.leave), min_confidence=1.0))


PLAIN = (("slope", "plain_slope"), ("slope_error", "plain_slope_error"))  # of predictions that are not adapted
RULES: dict[str, Rule] = {
    "paper": Rule(shipped("mixture"), estimates=False),
    "slope (auto up to 0.1)": Rule(shipped("slope"), shown=PLAIN),
    "slope, adapted": measured(BY_SLOPE),
    "agreement, adapted": measured(BY_AGREEMENT),
    "both (auto)": Rule(shipped("auto")),
    "both, certainty 2": Rule(shipped("auto", certainty=2.0)),
    "both, certainty 3": Rule(shipped("auto", certainty=3.0)),
    "both, share 0.05": Rule(shipped("auto", share=0.05)),
    "both, share 0.15": Rule(shipped("auto", share=0.15)),
    "both, without min_learned": Rule(shipped("auto", min_learned=0.0)),
    "both and leave-one-out agreement": measured(BY_SLOPE, BY_AGREEMENT, BY_LEFT_OUT),
    "confident joint, share 0.1": measured(BY_JOINT),
    "confident joint, share 0.2": measured(BY_JOINT, min_share=0.2),
    "EM share 0.1": measured(BY_UNIFORM),
    "EM share 0.2": measured(BY_UNIFORM, min_share=0.2),
    "calibration gap 0.1": measured(BY_GAP),
    "calibration gap 0.2": measured(BY_GAP, min_share=0.2),
}


@dataclass(frozen=True)
class Tally:
    """Counts over some federations; all but the first two are of client-rounds."""

    clean: int = 0  # federations without mislabeled clients
    quiet: int = 0  # of these, those where nobody is judged
    wrong: int = 0  # beyond the bar
    found: int = 0  # of these, judged
    judged: int = 0
    rightly: int = 0  # of these, mislabeled
    estimated: int = 0
    error: float = 0.0  # of the estimates, their sum

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def figures(self) -> dict[str, str]:
        """The table's columns."""
        return {
            "nobody judged": _share(self.quiet, self.clean),
            "recall": _share(self.found, self.wrong),
            "precision": _share(self.rightly, self.judged),
            "error": f"{self.error / self.estimated:.3f}" if self.estimated else "-",
        }


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({whole})" if whole else "-"


@dataclass(frozen=True)
class Recording:
    """One federation: what kind it is of, what is true of its clients, and their reports."""

    name: str
    kind: str
    noise: str
    mislabeled: frozenset[ClientId]
    wrong_share: Mapping[ClientId, float]
    rounds: Sequence[Reports]

    @property
    def beyond(self) -> frozenset[ClientId]:
        """The mislabeled clients that a rule should find."""
        bar = median(share for c, share in self.wrong_share.items() if c not in self.mislabeled) + BAR
        return frozenset(c for c in self.mislabeled if self.wrong_share[c] >= bar - 1e-9)


def read(path: Path) -> Recording:
    """A recording of `studies.record`."""
    found = json.loads(path.read_text(encoding="utf-8"))
    truth = found["truth"]
    mislabeled, wrong_share = frozenset(truth["mislabeled"]), truth["wrong_share"]
    return Recording(path.stem, found["kind"], found["noise"], mislabeled, wrong_share, found["rounds"])


def judge(rule: Rule, recording: Recording) -> Tally:
    """How well the rule does over the last rounds."""
    diagnosis: Diagnosis = {}
    lines: list[Diagnosis] = []
    for reports in recording.rounds:
        seen = {c: {**r, **{name: r[own] for name, own in rule.shown if own in r}} for c, r in reports.items()}
        diagnosis = rule.judge(diagnosis, seen, When(1, 1))
        lines.append(diagnosis)
    verdicts = [(c, verdict) for line in lines[-LAST:] for c, verdict in line.items()]
    return _tally(recording, verdicts, rule.estimates)


def _tally(recording: Recording, verdicts: Sequence[tuple[ClientId, Verdict]], estimates: bool) -> Tally:
    judged = [c for c, verdict in verdicts if verdict.group == "mislabeled"]
    known = [(c, v.suspicion) for c, v in verdicts if estimates and v.suspicion is not None]
    clean, beyond = not recording.mislabeled, recording.beyond
    return Tally(
        clean=int(clean),
        quiet=int(clean and not judged),
        wrong=sum(c in beyond for c, _ in verdicts),
        found=sum(c in beyond for c in judged),
        judged=len(judged),
        rightly=sum(c in recording.mislabeled for c in judged),
        estimated=len(known),
        error=sum(abs(share - recording.wrong_share[c]) for c, share in known),
    )


def tables(recordings: Sequence[Recording], tallies: Mapping[str, Sequence[Tally]]) -> Iterable[str]:
    """A table of all federations, then one of each figure by kind of data and by noise."""
    yield _table("all federations", {rule: sum(own, Tally()).figures for rule, own in tallies.items()})
    for what, groups in (("kind", [one.kind for one in recordings]), ("noise", [one.noise for one in recordings])):
        for figure in Tally().figures:
            rows = {rule: _by_group(own, groups, figure) for rule, own in tallies.items()}
            yield _table(f"{figure}, by {what}", rows)


def _by_group(tallies: Sequence[Tally], groups: Sequence[str], figure: str) -> dict[str, str]:
    found: dict[str, Tally] = defaultdict(Tally)
    for group, tally in zip(groups, tallies, strict=True):
        found[group] += tally
    return {group: own.figures[figure] for group, own in found.items()}


def _table(title: str, rows: Mapping[str, Mapping[str, str]]) -> str:
    heads = [head for head in next(iter(rows.values()), {}) if any(row[head] != "-" for row in rows.values())]
    lines = [f"| {rule} | {' | '.join(row[head] for head in heads)} |" for rule, row in rows.items()]
    return "\n".join([f"| {title} | {' | '.join(heads)} |", f"|{'---|' * (len(heads) + 1)}", *lines, ""])


def main() -> None:
    """Prints the tables, or what a rule gets wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--misses", help="list the federations that this rule gets wrong", choices=RULES)
    parser.add_argument("--only", default="", help="compare only the rules whose names contain this")
    options = parser.parse_args()
    recordings = [read(path) for path in sorted(options.recordings.glob("*.json"))]
    print(f"{len(recordings)} federations\n")
    if options.misses:
        print("\n".join(misses(recordings, RULES[options.misses])))
        return
    chosen = {name: rule for name, rule in RULES.items() if options.only in name}
    tallies = {name: [judge(rule, one) for one in recordings] for name, rule in chosen.items()}
    print("\n".join(tables(recordings, tallies)))


def misses(recordings: Sequence[Recording], rule: Rule) -> Iterable[str]:
    """Federations in which an innocent client is judged, or one beyond the bar is not."""
    for one in recordings:
        tally = judge(rule, one)
        wrongly, missed = tally.judged - tally.rightly, tally.wrong - tally.found
        if wrongly or missed:
            yield f"{one.name}: {wrongly} wrongly, {missed} missed, in client-rounds of the last {LAST} rounds"


if __name__ == "__main__":
    main()
