"""The accountant against dp-accounting's own numbers, and against closed forms that know nothing of it."""

from __future__ import annotations

import sys
from math import erfc, exp, sqrt

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from fedpca.errors import SettingsError
from fedpca.parts.accounting import Released, exceeds, noise_for, spent


def delta_of(noise: float, epsilon: float) -> float:
    """Of one release with normal noise (Balle and Wang 2018, theorem 8), with the error function alone."""

    def below(x: float) -> float:
        return erfc(-x / sqrt(2)) / 2

    return below(1 / (2 * noise) - epsilon * noise) - exp(epsilon) * below(-1 / (2 * noise) - epsilon * noise)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize("count", [1, 7, 240])
def test_noise_spends_its_epsilon_by_the_closed_form(epsilon: float, delta: float, count: int):
    noise = noise_for(epsilon, delta, count)
    assert delta_of(noise / sqrt(count), epsilon) == pytest.approx(delta, rel=1e-5)
    assert spent([Released(noise, count)], delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("releases", [[(3.0, 5)], [(10.0, 60), (4.0, 3)], [(20.0, 100), (30.0, 400), (8.0, 1)]])
def test_composition_is_that_of_the_librarys_accountants(releases: list[tuple[float, int]]):
    exact, renyi = PLDAccountant(), RdpAccountant()
    for noise, count in releases:
        event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise), count)
        exact.compose(event)
        renyi.compose(event)
    own = spent([Released(*one) for one in releases], 1e-5)
    assert own == pytest.approx(exact.get_epsilon(1e-5), rel=1e-4)
    assert own <= renyi.get_epsilon(1e-5) <= 1.5 * own  # an upper bound that is not tight


def test_what_is_nothing_costs_nothing_and_what_has_no_noise_everything():
    assert noise_for(1.0, 1e-5, 0) == spent([], 1e-5) == spent([Released(1.0, 0)], 1e-5) == 0
    assert spent([Released(0.0, 1)], 1e-5) == float("inf")
    assert exceeds(8.01, 8.0)
    assert not exceeds(8.0 + 1e-9, 8.0)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(
        SettingsError, match=r"privacy\.epsilon needs .* not installed: pip install 'fedpca\[privacy\]'"
    ):
        noise_for(1.0, 1e-5, 1)
