"""Numbers of reports under local differential privacy."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from math import exp, inf, nan
from pathlib import Path
from statistics import fmean, stdev

import pytest

from fedpca.core import Method
from fedpca.errors import SettingsError
from fedpca.methods.base import base, one_stage
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.methods.registry import method_names
from fedpca.parts.accounting import noise_for
from fedpca.parts.client.private_report import noise_of_run, numbers_by_round, privatize, range_of
from fedpca.runs.check import method_of
from fedpca.screening import Bound, Claims, claims_of
from fedpca.settings.experiment import Experiment
from fedpca.settings.privacy import ReportPrivacy

CLAIMS = Claims(
    {
        "loss": Bound(0, 1e6, usual=(0, 5)),
        "free": Bound(-1e9, 1e9, usual=(-1, 3)),
        "share": Bound(0, 1),
        "slope": Bound(-1e6, 1e6, needed="never", usual=(-2, 6), absent=1.0),
        "gap": Bound(-1e6, 1e6, needed="never", usual=(-1, 1)),
        "classes": Bound(2, 1e6, public=True),
    }
)
OWN = ReportPrivacy(epsilon=8.0)


def told(report: dict[str, float], noise: float = 0.0, privacy: ReportPrivacy = OWN) -> dict[str, float]:
    rng = random.Random(told.seed)
    told.seed += 1
    return privatize(report, privacy, CLAIMS, lambda: rng.gauss(0.0, 1.0), noise)


told.seed = 0


def test_numbers_are_clipped_to_their_ranges_and_others_do_not_leave():
    report = {"loss": 900.0, "free": -7.0, "share": 0.4, "gap": 5.0, "classes": 10.0, "mine": 3.0}
    assert told(report) == {"loss": 5.0, "free": -1.0, "share": 0.4, "slope": 1.0, "gap": 1.0, "classes": 10.0}


def test_what_is_absent_because_of_the_data_is_told_and_what_the_server_knows_to_be_absent_is_not():
    assert told({}) == {"slope": 1.0}


def test_what_is_no_number_tells_nothing():
    assert told({"loss": nan, "free": inf})["loss"] == 0.0
    assert told({"loss": nan, "free": inf})["free"] == 3.0


def test_noise_is_in_proportion_to_each_range():
    drawn = [told({"free": 2.0, "slope": 0.5}, noise=0.7) for _ in range(3000)]
    for key, middle, width in (("free", 2.0, 4.0), ("slope", 0.5, 8.0)):
        values = [own[key] for own in drawn]
        assert fmean(values) == pytest.approx(middle, abs=0.06 * width)
        assert stdev(values) == pytest.approx(0.7 * width, rel=0.05)


def test_noisy_numbers_stay_within_what_methods_count_on():
    for _ in range(200):
        own = told({"loss": 0.1, "share": 0.99}, noise=5.0)
        assert own["loss"] >= 0
        assert 0 <= own["share"] <= 1


def test_nobody_tells_two_sites_apart_better_than_epsilon_and_delta_allow():
    """The most unlike data there are, and every threshold: P(A) - e^epsilon P(B) stays below delta, as far as seen."""
    epsilon, delta, count = 1.0, 0.05, 20_000
    claims, own = Claims({"free": CLAIMS.bounds["free"]}), ReportPrivacy(epsilon=epsilon, delta=0.01)
    noise, rng = noise_for(epsilon, delta, 1), random.Random(7)
    low, high = (
        sorted(privatize({"free": end}, own, claims, lambda: rng.gauss(0.0, 1.0), noise)["free"] for _ in range(count))
        for end in (-100.0, 100.0)
    )
    seen = max((sum(x > t for x in high) - exp(epsilon) * sum(x > t for x in low)) / count for t in range(-20, 21, 2))
    assert delta / 2 < seen < delta + 3 / count**0.5


@pytest.mark.parametrize("name", ["fedavg", "fedpca", "fedpca-d", "fedpca-hs-auto", "fedism", "fedga", "fedcorr"])
def test_every_number_of_a_method_has_a_range_and_is_counted(name: str):
    method = compose(name, Plan(rounds=12))
    counts = numbers_by_round(method, 12, OWN)
    for round, count in enumerate(counts, 1):
        recipe = method.recipe(round)
        bounds = [bound for part in (recipe.report, recipe.train) for bound in claims_of(part).bounds.values()]
        assert count == sum(not bound.public for bound in bounds)
    assert noise_of_run(method, 12, OWN) == pytest.approx(noise_for(8.0, 1e-5, sum(counts)))


def test_of_each_method_it_is_known_whether_its_reports_can_be_private():
    refused = set()
    for name in method_names():
        try:
            numbers_by_round(method_of(Experiment(methods=(name,), rounds=40)), 40, OWN)
        except SettingsError as error:
            assert f"and {name} reports" in str(error)  # noqa: PT017
            refused.add(name)
    assert refused == {"feddiv", "fedelc", "fedism+fednoro", "fednoro", "fedrn", "na-fedavg"}


def method_with(**bounds: Bound) -> Method:
    def report(site: object) -> dict[str, float]:
        return {}

    vars(report)["claims"] = Claims(bounds)
    return one_stage(replace(base(Plan(rounds=2)), report=report))


def test_a_number_without_a_range_needs_one():
    method = method_with(wide=Bound(0, 1e6))
    with pytest.raises(
        SettingsError, match=r"needs the range of 'wide', .* from 0 to 1e\+06: set privacy\.ranges\.wide"
    ):
        numbers_by_round(method, 2, OWN)
    assert numbers_by_round(method, 2, ReportPrivacy(epsilon=1, ranges={"wide": "0, 10"})) == [1, 1]


def test_ranges_count_in_a_combination_too_and_never_exceed_the_bounds():
    assert range_of("fedga/loss", CLAIMS.bounds["loss"], {"loss": (-3.0, 2.0)}) == (0, 2)


def test_who_does_not_declare_what_it_reports_is_refused():
    def report(site: object) -> dict[str, float]:
        return {}

    with pytest.raises(SettingsError, match="does not declare it"):
        numbers_by_round(one_stage(replace(base(Plan(rounds=2)), report=report)), 2, OWN)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 1, "noise": 0.1}, "leave clip and noise out"),
        ({"ranges": {"loss": (0, 1)}}, "which is not set"),
        ({"epsilon": 1, "ranges": {"loss": (1, 0)}}, "the lower first, got 1 and 0"),
        ({"epsilon": 0}, "greater than 0"),
        ({"epsilon": 1, "delta": 0.5}, "less than or equal to 0.01"),
    ],
)
def test_settings_that_promise_nothing_are_refused(settings: dict, words: str):
    with pytest.raises(ValueError, match=words):
        ReportPrivacy(**settings)


def test_the_page_has_every_range_that_the_parts_declare():
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
    rows = page.split("### Ranges")[1].split("\n## ")[0].split("\n### ")[0]
    written: dict[str, tuple[float, float]] = {}
    for names, low, high in re.findall(r"^\| (.*) \| (-?[\d.]+) to (-?[\d.]+) \|$", rows, re.MULTILINE):
        written |= {name: (float(low), float(high)) for name in re.findall(r"`(\w+)`", names)}
    declared: dict[str, tuple[float, float]] = {}
    for method in (method_of(Experiment(methods=(name,), rounds=40)) for name in method_names()):
        for part in (part for stage in method.stages for part in (stage.recipe.report, stage.recipe.train)):
            for key, bound in claims_of(part).bounds.items():
                if not bound.many and not bound.public:
                    declared[key.rpartition("/")[2]] = range_of(key, bound, {})
    del declared["accuracy"]  # FedRN's, which reports a list besides
    assert written == declared
