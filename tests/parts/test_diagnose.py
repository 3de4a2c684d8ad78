from dataclasses import replace

import pytest

from fedpca.core import Verdict, When
from fedpca.parts.server.diagnose import NameGroups, Smoothed, remember
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
        NameGroups(Scripted(*groups), Smoothed(**{"smoothing": 0.5, "threshold": 0.5, **options}), min_confidence=0.9),
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
    part = NameGroups(Scripted(None), Smoothed(smoothing=0.5, threshold=0.5), min_confidence=0.9)
    before = {"k": Verdict(group="mislabeled", suspicion=0.8)}
    assert part(before, {"k": {"dispersion": 1.0}}, NOW)["k"].group == "mislabeled"
    assert (
        NameGroups(Scripted(None), Smoothed(smoothing=0.5, threshold=0.5), min_confidence=0.9)(
            {}, {"k": {"dispersion": 1.0}}, NOW
        )["k"].group
        is None
    )


def test_reports_of_another_kind_change_nothing():
    part = NameGroups(Scripted(), Smoothed(smoothing=0.5, threshold=0.5), min_confidence=0.9)
    before = {"k": Verdict(group="rare", suspicion=0.1, threshold=0.95)}
    assert part(before, {"k": {"steps": 3.0}}, NOW) == {"k": replace(before["k"], report={"steps": 3.0})}


def threshold(*reported: tuple[str, float | None]) -> float:
    """The threshold when clients of these groups report these confidences."""
    findings = {str(i): Finding(group, 1.0 if group == "mislabeled" else 0.0) for i, (group, _) in enumerate(reported)}
    told = {
        str(i): {"dispersion": 1.0, **({} if value is None else {"confidence": value})}
        for i, (_, value) in enumerate(reported)
    }
    verdicts = NameGroups(Scripted(findings), Smoothed(smoothing=0.5, threshold=0.5), min_confidence=0.9)({}, told, NOW)
    (level,) = {verdict.threshold for verdict in verdicts.values()}
    return level


def test_the_threshold_is_the_mean_over_common_clients_and_at_least_the_floor():
    assert threshold(("common", 0.983), ("common", 0.9765), ("rare", 0.2), ("mislabeled", 0.1)) == pytest.approx(
        0.97975
    )
    assert threshold(("common", 0.85), ("common", 0.85)) == 0.9
    assert threshold(("common", 0.98), ("common", None)) == 0.98


def test_without_a_common_client_those_not_judged_mislabeled_speak_at_first():
    assert threshold(("rare", 0.99), ("rare", 0.97), ("mislabeled", 0.5)) == pytest.approx(0.98)
    assert threshold(("rare", 0.5)) == 0.9
    assert threshold(("common", None), ("rare", 0.99)) == 0.99
    assert threshold(("mislabeled", 0.99), ("rare", None)) == 1.0, "no confidence exceeds it"


def test_without_a_common_client_the_threshold_of_the_round_before_stays():
    common, rare, wrong = Finding("common", 0.0), Finding("rare", 0.0), Finding("mislabeled", 1.0)
    rounds = [{"a": common, "b": wrong}, {"a": rare, "b": wrong}, None, {"a": common, "b": wrong}]
    part, diagnosis, levels = (
        NameGroups(Scripted(*rounds), Smoothed(smoothing=1.0, threshold=0.5), min_confidence=0.9),
        {},
        [],
    )
    for confidence in (0.98, 0.92, 0.91, 0.95):
        told = {client: {"dispersion": 1.0, "confidence": confidence} for client in "ab"}
        diagnosis = part(diagnosis, told, NOW)
        levels.append({verdict.threshold for verdict in diagnosis.values()})
    assert levels == [{0.98}, {0.98}, {0.98}, {0.95}]


def test_before_the_first_findings_those_judged_earlier_do_not_speak():
    """A rule that says nothing leaves the groups, and so who is asked, as they were."""
    part = NameGroups(Scripted(None), Smoothed(smoothing=0.5, threshold=0.5), min_confidence=0.9)
    before = {"a": Verdict(group="mislabeled"), "b": Verdict()}
    told = {"a": {"dispersion": 1.0, "confidence": 0.91}, "b": {"dispersion": 1.0, "confidence": 0.99}}
    assert part(before, told, NOW)["a"].threshold == 0.99


def test_remember_keeps_what_was_told_before():
    told = remember({"a": Verdict(report={"loss": 1.0, "size": 3.0})}, {"a": {"loss": 2.0}, "b": {"loss": 4.0}}, NOW)
    assert told["a"].report == {"loss": 2.0, "size": 3.0}
    assert told["b"].report == {"loss": 4.0}


def test_the_confidence_of_the_newly_suspected_does_not_count():
    calm, alarmed = Finding("common", 0.0), Finding("mislabeled", 1.0)
    part = NameGroups(
        Scripted({"a": calm, "b": calm}, {"a": calm, "b": alarmed}),
        Smoothed(smoothing=0.2, threshold=0.5),
        min_confidence=0.9,
    )
    first = part({}, {"a": {"dispersion": 1.0, "confidence": 0.98}, "b": {"dispersion": 1.0, "confidence": 0.94}}, NOW)
    assert first["a"].threshold == pytest.approx(0.96)
    second = part(first, {"a": {"dispersion": 1.0}, "b": {"dispersion": 1.0, "confidence": 0.99}}, NOW)
    assert second["b"].group == "common", "one suspicion is not enough at this smoothing"
    assert second["a"].threshold == pytest.approx(0.96)
