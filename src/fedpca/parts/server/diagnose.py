"""The server's opinion of the clients, folded from what they report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class NameGroups:
    """Common, rare or mislabeled, with evidence smoothed over rounds, and the confidence that samples must exceed."""

    identify: Identify
    smoothing: float  # share of the new evidence
    threshold: float  # of smoothed evidence, from which on a client is mislabeled
    min_confidence: float

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        """New opinions where the reports are of loss and dispersion; without findings the old ones stay."""
        if not any("dispersion" in report for report in reports.values()):
            return remember(diagnosis, reports, when)
        findings, known = self.identify(reports) or {}, dict(diagnosis)
        judged = {client: self._judge(known.get(client, NOBODY), finding) for client, finding in findings.items()}
        common = [c for c, finding in findings.items() if finding.group == "common" == judged[c][1]]
        groups = {**{c: v.group for c, v in diagnosis.items()}, **{c: group for c, (_, group) in judged.items()}}
        level = self._confidence(diagnosis, reports, common, [c for c in reports if groups.get(c) != "mislabeled"])
        for client in {**diagnosis, **reports}:
            verdict = known.get(client, NOBODY)
            suspicion, group = judged.get(client, (verdict.suspicion, verdict.group))
            report = {**verdict.report, **reports.get(client, {})}
            known[client] = verdict.having(suspicion=suspicion, group=group, threshold=level, report=report)
        return known

    def _judge(self, verdict: Verdict, finding: Finding) -> tuple[float, Group]:
        """The smoothed evidence, and the group that it makes of the finding's."""
        before = finding.evidence if verdict.suspicion is None else verdict.suspicion
        suspicion = self.smoothing * finding.evidence + (1 - self.smoothing) * before
        innocent: Group = "common" if finding.group == "mislabeled" else finding.group
        return suspicion, "mislabeled" if suspicion >= self.threshold else innocent

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
