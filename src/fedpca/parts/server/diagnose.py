"""The server's opinion of the clients, folded from what they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedpca.core import NOBODY, ClientId, Diagnose, Diagnosis, Group, Report, Verdict, When
from fedpca.parts.server.identify import Finding, Identify


def remember(diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
    """The same opinions, with each client's latest report beside the values it gave earlier."""
    known = dict(diagnosis)
    for client, report in reports.items():
        verdict = known.get(client, NOBODY)
        known[client] = verdict.having(report={**verdict.report, **report}) if report else verdict
    return known


@dataclass(frozen=True)
class InTurn:
    """Several opinions, each folded onto the one before."""

    parts: tuple[Diagnose, ...]

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        for part in self.parts:
            diagnosis = part(diagnosis, reports, when)
        return diagnosis


Settle = Callable[[Verdict, Finding], Verdict]  # what one round's finding makes of the opinion so far


@dataclass(frozen=True)
class Smoothed:
    """Mislabeled from a `threshold` of the evidence on, which is smoothed over rounds."""

    smoothing: float  # share of the new evidence
    threshold: float

    def __call__(self, verdict: Verdict, finding: Finding) -> Verdict:
        """The smoothed evidence, and the group that it makes of the finding's."""
        before = finding.evidence if verdict.suspicion is None else verdict.suspicion
        suspicion = self.smoothing * finding.evidence + (1 - self.smoothing) * before
        group = "mislabeled" if suspicion >= self.threshold else innocent(finding.group)
        return verdict.having(suspicion=suspicion, group=group, estimate=finding.estimate)


@dataclass(frozen=True)
class InARow:
    """Mislabeled after so many findings in a row that say so, and no longer after so many that do not."""

    enter: int
    leave: int

    def __call__(self, verdict: Verdict, finding: Finding) -> Verdict:
        """The finding's evidence as it is; the group changes when the findings against it are enough in a row."""
        judged, says = verdict.group == "mislabeled", finding.group == "mislabeled"
        against = verdict.notes.get(AGAINST, 0) + 1 if judged != says else 0
        changed = against >= (self.leave if judged else self.enter)
        group = "mislabeled" if judged != changed else innocent(finding.group)
        notes = {**verdict.notes, AGAINST: 0 if changed else against}
        suspicion = finding.estimate.share if finding.estimate else finding.evidence
        return verdict.having(suspicion=suspicion, group=group, estimate=finding.estimate, notes=notes)


AGAINST = "against"  # note: findings in a row that contradict the group


def innocent(group: Group) -> Group:
    """The group of a client that is not judged mislabeled, whatever this round alone says."""
    return "common" if group == "mislabeled" else group


@dataclass(frozen=True)
class NameGroups:
    """Common, rare or mislabeled, settled over rounds, and the confidence that samples must exceed."""

    identify: Identify
    settle: Settle
    min_confidence: float

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """New opinions where the reports are of loss and dispersion; without findings the old ones stay."""
        if not any("dispersion" in report for report in reports.values()):
            return remember(diagnosis, reports, when)
        findings, known = self.identify(reports) or {}, dict(diagnosis)
        for client, finding in findings.items():
            known[client] = self.settle(known.get(client, NOBODY), finding)
        common = [c for c, finding in findings.items() if finding.group == "common" == known[c].group]
        others = [c for c in reports if known.get(c, NOBODY).group != "mislabeled"]
        level = self._confidence(diagnosis, reports, common, others)
        for client in {**diagnosis, **reports}:
            verdict = known.get(client, NOBODY)
            known[client] = verdict.having(threshold=level, report={**verdict.report, **reports.get(client, {})})
        return known

    def _confidence(
        self,
        diagnosis: Diagnosis,
        reports: Mapping[ClientId, Report],
        common: Sequence[ClientId],
        others: Sequence[ClientId],
    ) -> float:
        """The mean of what common clients report in this round, at least `min_confidence`.

        Where they report none the threshold stays. If there is none yet, the others speak for them; if these report
        none either, nobody is trained on guesses.
        """
        before = min((verdict.threshold for verdict in diagnosis.values()), default=NOBODY.threshold)
        given = confidences(reports, common)
        if not given and before == NOBODY.threshold:
            given = confidences(reports, others)
        return max(fmean(given), self.min_confidence) if given else before


def confidences(reports: Mapping[ClientId, Report], clients: Sequence[ClientId]) -> list[float]:
    """What those of these clients report that report a confidence."""
    return [value for client in clients if isinstance(value := reports[client].get("confidence"), float)]
