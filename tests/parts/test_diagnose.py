from dataclasses import replace

import pytest

from fedpca.core import Verdict, When
from fedpca.parts.server.diagnose import NameGroups, remember
from fedpca.parts.server.identify import Finding

NOW = When(1, 1)


class Scripted:
    """Findings as told, one per call."""

    def __init__(self, *findings):
        self.findings = list(findings)

    def __call__(self, reports):
        return self.findings.pop(0)


def after(*observed: float, **options: float):
    """Verdicts on one client after each observation of its evidence."""
    groups = [{"k": Finding("mislabeled" if e >= 0.5 else "common", e)} for e in observed]
    part, verdicts, diagnosis = (
        NameGroups(Scripted(*groups), **{"smoothing": 0.5, "threshold": 0.5, "min_confidence": 0.9, **options}),
        [],
        {},
    )
    for _ in observed:
        diagnosis = part(diagnosis, {"k": {"loss": 1.0, "dispersion": 1.0}}, NOW)
        verdicts.append(diagnosis["k"])
    return verdicts


def test_the_specifications_smoothing():
    verdicts = after(1, 0, 1, 0, 0, 1, 1)
    assert [v.suspicion for v in verdicts] == [1, 0.5, 0.75, 0.375, 0.1875, 0.59375, 0.796875]
    assert ["N" if v.group == "mislabeled" else "c" for v in verdicts] == list("NNNccNN")


def test_constant_evidence_is_approached_geometrically():
    verdicts = after(0, *[1.0] * 6, smoothing=0.25)
    assert [1 - v.suspicion for v in verdicts] == pytest.approx([0.75**i for i in range(7)])


def test_who_was_accused_too_seldom_is_common():
    assert after(0, 1, smoothing=0.2)[-1].group == "common"


def test_without_findings_opinions_stay():
    part = NameGroups(Scripted(None), smoothing=0.5, threshold=0.5, min_confidence=0.9)
    before = {"k": Verdict(group="mislabeled", suspicion=0.8)}
    assert part(before, {"k": {"dispersion": 1.0}}, NOW)["k"].group == "mislabeled"
    assert (
        NameGroups(Scripted(None), smoothing=0.5, threshold=0.5, min_confidence=0.9)(
            {}, {"k": {"dispersion": 1.0}}, NOW
        )["k"].group
        is None
    )


def test_reports_of_another_kind_change_nothing():
    part = NameGroups(Scripted(), smoothing=0.5, threshold=0.5, min_confidence=0.9)
    before = {"k": Verdict(group="rare", suspicion=0.1, threshold=0.95)}
    assert part(before, {"k": {"steps": 3.0}}, NOW) == {"k": replace(before["k"], report={"steps": 3.0})}


def threshold(*reported: tuple[str, float | None]) -> float:
    """The threshold when clients of these groups report these confidences."""
    findings = {str(i): Finding(group, 1.0 if group == "mislabeled" else 0.0) for i, (group, _) in enumerate(reported)}
    told = {
        str(i): {"dispersion": 1.0, **({} if value is None else {"confidence": value})}
        for i, (_, value) in enumerate(reported)
    }
    verdicts = NameGroups(Scripted(findings), smoothing=0.5, threshold=0.5, min_confidence=0.9)({}, told, NOW)
    (level,) = {verdict.threshold for verdict in verdicts.values()}
    return level


def test_the_threshold_is_the_mean_over_common_clients_and_at_least_the_floor():
    assert threshold(("common", 0.983), ("common", 0.9765), ("rare", 0.2), ("mislabeled", 0.1)) == pytest.approx(
        0.97975
    )
    assert threshold(("common", 0.85), ("common", 0.85)) == 0.9
    assert threshold(("common", 0.98), ("common", None)) == 0.98
    assert threshold(("rare", 0.99)) == 0.9


def test_remember_keeps_what_was_told_before():
    told = remember({"a": Verdict(report={"loss": 1.0, "size": 3.0})}, {"a": {"loss": 2.0}, "b": {"loss": 4.0}}, NOW)
    assert told["a"].report == {"loss": 2.0, "size": 3.0}
    assert told["b"].report == {"loss": 4.0}


def test_last_rounds_confidence_does_not_count_nor_that_of_the_newly_suspected():
    calm, alarmed = Finding("common", 0.0), Finding("mislabeled", 1.0)
    part = NameGroups(
        Scripted({"a": calm, "b": calm}, {"a": calm, "b": alarmed}), smoothing=0.2, threshold=0.5, min_confidence=0.9
    )
    first = part({}, {"a": {"dispersion": 1.0, "confidence": 0.98}, "b": {"dispersion": 1.0, "confidence": 0.94}}, NOW)
    assert first["a"].threshold == pytest.approx(0.96)
    second = part(first, {"a": {"dispersion": 1.0}, "b": {"dispersion": 1.0, "confidence": 0.99}}, NOW)
    assert second["b"].group == "common", "one suspicion is not enough at this smoothing"
    assert second["a"].threshold == 0.9
