"""Reported numbers are clipped and get noise that the server cannot compute."""

import math
from statistics import fmean, stdev

from fedpca.parts.client.private_report import privatize as privatize_with
from fedpca.screening import Bound, Claims
from fedpca.sites.privacy import gauss
from fedpca.sites.settings import ReportPrivacy

REPORT = {"loss": 7.0, "dispersion": -9.0, "confidence": 0.9, "class_loss": [0.5, 6.0], "fedga/slope": -8.0}
CLAIMS = Claims(
    {
        "loss": Bound(0, 1e6),
        "dispersion": Bound(-28, 200),
        "confidence": Bound(0, 1),
        "class_loss": Bound(0, 1e6, many=True),
        "fedga/slope": Bound(-1e6, 1e6),
    }
)


def privatize(report, privacy, claims):
    return privatize_with(report, privacy, claims, gauss, 0.0)


def test_without_settings_the_report_is_as_it_was():
    assert privatize(REPORT, ReportPrivacy(), CLAIMS) == REPORT


def test_numbers_are_clipped():
    clipped = {"loss": 4.0, "dispersion": -4.0, "confidence": 0.9, "class_loss": [0.5, 4.0], "fedga/slope": -4.0}
    assert privatize(REPORT, ReportPrivacy(clip=4.0), CLAIMS) == clipped


def test_noise_has_the_deviation_that_was_asked_for_and_is_new_each_time():
    drawn = [privatize({"dispersion": -3.0}, ReportPrivacy(noise=0.5), CLAIMS)["dispersion"] for _ in range(4000)]
    assert len(set(drawn)) == len(drawn)
    assert abs(fmean(drawn) + 3) < 0.05
    assert abs(stdev(drawn) - 0.5) < 0.05


def test_noise_leaves_numbers_in_the_range_that_methods_count_on():
    for _ in range(200):
        report = privatize({"loss": 0.1, "confidence": 0.99, "class_loss": [0.0]}, ReportPrivacy(noise=5.0), CLAIMS)
        assert report["loss"] >= 0
        assert 0 <= report["confidence"] <= 1
        assert report["class_loss"][0] >= 0


def test_noise_on_what_no_part_declares_has_no_range():
    assert any(privatize({"mine": 0.0}, ReportPrivacy(noise=5.0), Claims(open=True))["mine"] < 0 for _ in range(50))


def test_what_is_not_finite_stays_so_for_the_server_to_refuse():
    assert math.isnan(privatize({"loss": math.nan}, ReportPrivacy(clip=1.0, noise=0.1), CLAIMS)["loss"])
