"""Noise on the mean at the server: what one client can change, how much noise that takes, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedpca.core import Params, Server, Update, Verdict
from fedpca.errors import SettingsError
from fedpca.methods.central_privacy import require_promise, with_central_noise
from fedpca.methods.registry import method_names
from fedpca.parts.accounting import Released, spent
from fedpca.parts.server.central import draws_of
from fedpca.runs.check import method_of
from fedpca.runs.private import privacy_of
from fedpca.settings.experiment import Experiment
from fedpca.settings.privacy import CentralPrivacy, PrivacySettings, ReportPrivacy

CLIP = 2.0
ALONE = PrivacySettings(central=CentralPrivacy(epsilon=8, clip=CLIP))
BOTH = PrivacySettings(reports=ReportPrivacy(epsilon=8), central=CentralPrivacy(epsilon=8, clip=CLIP))
SIZE = 2000


def state(*values: float) -> Params:
    weights = torch.zeros(SIZE)
    weights[: len(values)] = torch.tensor(values)
    return Params(weights, torch.zeros(0), torch.zeros(0, dtype=torch.int64))


def server(*ids: str, dispersion: float = -1.0) -> Server:
    known = {client: Verdict(report={"dispersion": dispersion * place}) for place, client in enumerate(ids)}
    return Server(state(), 6, known)


def mean_of(name: str, updates: dict[str, Update], noise: float, secret: bytes = b"0", start: Server | None = None):
    method = with_central_noise(method_of(Experiment(methods=(name,), rounds=20)), BOTH, noise, draws_of(secret))
    fold = method.recipe(20).aggregate(start or server(*updates))
    for client, update in updates.items():
        fold.add(client, update)
    return fold.finish()


@pytest.mark.parametrize("name", ["fedavg", "fedpca-d", "fedism"])
def test_one_client_moves_the_mean_by_no_more_than_its_weight_times_the_length(name: str):
    """Whatever it sends, and whatever size and reliability it claims; the others' weights do not notice."""
    crowd = {client: Update(state(1.0, -1.0), 10 * (place + 1)) for place, client in enumerate("abcde")}
    silent = mean_of(name, {**crowd, "z": Update(None, 0)}, 0.0)
    for update in (Update(state(1e6, 3.0), 10**9), Update(state(0, 0, 5), 1, 0.01), Update(state(1e-3), 3)):
        outcome = mean_of(name, {**crowd, "z": update}, 0.0)
        assert outcome.weights == silent.weights
        moved = float((outcome.params.weights - silent.params.weights).norm())
        assert moved <= outcome.weights["z"] * CLIP


@pytest.mark.parametrize("name", ["fedavg", "fedpca-d"])
def test_noise_is_in_proportion_to_the_length_and_the_largest_weight(name: str):
    crowd = {client: Update(state(1.0), 10) for client in "abcde"}
    still, noisy = mean_of(name, crowd, 0.0), mean_of(name, crowd, 3.0)
    assert still.weights == noisy.weights
    noise = noisy.params.weights - still.params.weights
    assert float(noise.std()) == pytest.approx(3.0 * CLIP * max(still.weights.values()), rel=0.06)
    assert abs(float(noise.mean())) < 4 * float(noise.std()) / SIZE**0.5


def test_noise_is_the_same_for_the_same_round_and_mean_and_new_for_any_other():
    crowd = {client: Update(state(1.0), 10) for client in "ab"}
    other = {**crowd, "b": Update(state(0.5), 10)}

    def noise(updates: dict[str, Update], secret: bytes = b"0", start: Server | None = None) -> torch.Tensor:
        still = mean_of("fedavg", updates, 0.0, secret, start).params.weights
        return mean_of("fedavg", updates, 1.0, secret, start).params.weights - still

    first, later = noise(crowd), replace(server("a", "b"), round=7)
    assert torch.equal(first, noise(crowd))
    for changed in (noise(other), noise(crowd, b"1"), noise(crowd, start=later)):
        assert abs(float(torch.corrcoef(torch.stack([first, changed]))[0, 1])) < 0.1


def test_who_is_asked_for_nothing_has_no_weight():
    start = server("a", "b")
    start = replace(start, diagnosis={**start.diagnosis, "b": replace(start.diagnosis["b"], group="mislabeled")})
    outcome = mean_of("fedpca-d", {"a": Update(state(1.0), 5), "b": Update(None, 0)}, 0.0, start=start)
    assert outcome.weights == {"a": 1.0, "b": 0.0}


def test_of_each_method_it_is_known_whether_noise_at_the_server_can_protect_it():
    allowed = set()
    for name in method_names():
        try:
            require_promise(method_of(Experiment(methods=(name,), rounds=40)), BOTH)
        except SettingsError as error:
            assert str(error).startswith("privacy.central needs")  # noqa: PT017
        else:
            allowed.add(name)
    assert allowed == ALLOWED


ALLOWED = {
    *("fedavg", "fedavgm", "fedprox", "fedadam", "fedyogi", "afl", "qfedavg", "term", "fedga", "fedism", "fedism+"),
    *("sce", "fedcorr", "fedlsr", "rhfl", "na-fedavg", "fedpca-d", "fedpca-hs", "fedpca-d-auto", "fedpca-hs-auto"),
    *("fedpca-wo-fairness", "fedpca-wo-robustness", "fedavg+d", "qfedavg+d", "fedga+d", "fedism+d"),
}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"methods": ["median"]}, "of which no client can change the others' weights, and median has PerCoordinate"),
        ({"methods": ["fedpca"]}, r"and fedpca has .* \(set method\.fedpca\.lift to a number, such as 1\.5\)"),
        (
            {"aggregation": {"clip": 3}},
            r"aggregation\.clip and max_share must be 0: privacy\.central\.clip bounds lengths",
        ),
        ({"aggregation": {"rule": "median"}}, r"aggregation\.rule must be mean"),
        ({"methods": ["scaffold"]}, "scaffold has ControlVariates"),
        ({"methods": ["local"]}, "needs one global model"),
    ],
)
def test_where_nothing_can_be_promised_nothing_is(settings: dict, words: str):
    with pytest.raises(SettingsError, match=words):
        require_promise(method_of(Experiment(rounds=20, **settings)), BOTH)


def test_weights_that_follow_reports_need_reports_with_noise():
    with pytest.raises(SettingsError, match=r"those of fedpca-d come from .*: set privacy\.reports\.epsilon too"):
        require_promise(method_of(Experiment(methods=("fedpca-d",))), ALONE)
    require_promise(method_of(Experiment(methods=("fedavg",))), ALONE)


def test_a_whole_run_spends_its_epsilon_and_no_more():
    method = method_of(Experiment(methods=("fedpca-d",), rounds=20))
    privacy = privacy_of(BOTH, method, 20)
    lines = [privacy.line({"round": round})["privacy"] for round in range(1, 21)]
    assert [line["central"] for line in lines] == sorted(line["central"] for line in lines)
    assert lines[-1]["central"] == lines[-1]["reports"] == pytest.approx(8.0, abs=2e-4)
    both = [*privacy.central.after(20), *privacy.reports.after(20)]
    assert lines[-1]["together"] == pytest.approx(spent(both, 1e-5), abs=2e-4)
    assert 8.0 < lines[-1]["together"] < 16.0


def test_who_takes_part_more_seldom_gets_less_noise():
    """Of the cohorts as they will be drawn, the client that is in most of them counts."""
    ids = [str(number) for number in range(10)]
    every, some = (
        privacy_of(ALONE, method_of(Experiment(rounds=30, participation=share)), 30, ids).central for share in (1, 0.3)
    )
    assert every.releases[-1] == 30
    assert 9 <= some.releases[-1] < 30
    assert some.noise < every.noise
    assert spent([Released(some.noise, some.releases[-1])], 1e-5) == pytest.approx(8.0)
