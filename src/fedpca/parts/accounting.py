"""What differential privacy costs over a run, by the accountant of dp-accounting; this module needs no PyTorch.

All noise here is normal. Normal noise on several numbers is normal noise on the vector of them: n numbers of
sensitivity 1 with deviation s are one release of sensitivity sqrt(n), or of sensitivity 1 with deviation s / sqrt(n).
So a whole run is one release, whatever was asked in answer to what (Dong et al. 2022, Gaussian differential privacy),
and its epsilon is that of the library's exact function (Balle and Wang 2018).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, sqrt
from typing import Any, NamedTuple

from fedpca.errors import SettingsError

SLACK = 1e-6  # by which an epsilon may miss the one that its noise was made for: the library searches for both


class Released(NamedTuple):
    """So many numbers, each with normal noise of this deviation over the most that one client can change it."""

    noise: float
    numbers: int


def noise_for(epsilon: float, delta: float, count: int) -> float:
    """The deviation with which so many numbers together spend epsilon; 0 for none.

    >>> from fedpca.parts.accounting import noise_for
    >>> round(noise_for(8.0, 1e-5, count=1), 3), round(noise_for(8.0, 1e-5, count=100), 3)
    (0.6, 6.002)
    """
    return float(_library().get_sigma_gaussian(epsilon, delta)) * sqrt(count) if count else 0.0


def spent(releases: Iterable[Released], delta: float) -> float:
    """The epsilon of all these releases together.

    >>> from fedpca.parts.accounting import Released, spent
    >>> round(spent([Released(noise=6.002, numbers=60), Released(noise=6.002, numbers=40)], delta=1e-5), 2)
    8.0
    """
    precision = sum(inf if own.noise == 0 else own.numbers / own.noise**2 for own in releases if own.numbers)
    if not precision:
        return 0.0
    return float(_library().get_epsilon_gaussian(1 / sqrt(precision), delta))


def exceeds(epsilon: float, most: float) -> bool:
    """Whether an epsilon is above another by more than rounding."""
    return epsilon > most * (1 + SLACK)


def _library() -> Any:  # noqa: ANN401 (it has no types)
    try:
        import dp_accounting
    except ImportError:
        raise SettingsError(
            "privacy.epsilon needs the accountant of dp-accounting, which is not installed: "
            "pip install 'fedpca[privacy]'"
        ) from None
    return dp_accounting
