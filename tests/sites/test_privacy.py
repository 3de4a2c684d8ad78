"""Reported numbers are clipped and get noise that the server cannot compute."""

import math
from statistics import fmean, stdev

from fedpca.sites.privacy import veiled
from fedpca.sites.settings import Veil

REPORT = {"loss": 7.0, "dispersion": -9.0, "confidence": 0.9, "class_loss": [0.5, 6.0], "fedga/slope": -8.0}


def test_without_a_veil_the_report_is_as_it_was():
    assert veiled(REPORT, Veil()) == REPORT


def test_numbers_are_clipped():
    clipped = {"loss": 4.0, "dispersion": -4.0, "confidence": 0.9, "class_loss": [0.5, 4.0], "fedga/slope": -4.0}
    assert veiled(REPORT, Veil(clip=4.0)) == clipped


def test_noise_has_the_deviation_that_was_asked_for_and_is_new_each_time():
    drawn = [veiled({"dispersion": -3.0}, Veil(noise=0.5))["dispersion"] for _ in range(4000)]
    assert len(set(drawn)) == len(drawn)
    assert abs(fmean(drawn) + 3) < 0.05
    assert abs(stdev(drawn) - 0.5) < 0.05


def test_noise_leaves_numbers_in_the_range_that_methods_count_on():
    for _ in range(200):
        report = veiled({"loss": 0.1, "confidence": 0.99, "class_loss": [0.0]}, Veil(noise=5.0))
        assert report["loss"] >= 0
        assert 0 <= report["confidence"] <= 1
        assert report["class_loss"][0] >= 0


def test_what_is_not_finite_stays_so_for_the_server_to_refuse():
    assert math.isnan(veiled({"loss": math.nan}, Veil(clip=1.0, noise=0.1))["loss"])
