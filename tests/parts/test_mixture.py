import warnings

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from fedpca.parts.mixture import bic, fit

KINDS = ["full", "tied", "diag", "spherical"]


def blobs(seed: int, sizes: tuple[int, ...] = (12, 5, 6), spread: float = 0.05) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.1, 0.9], [0.4, 0.2], [0.9, 0.8]])
    return np.concatenate([rng.normal(c, spread, (n, 2)) for c, n in zip(centres, sizes, strict=True)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_reaches_scikit_learns_likelihood(kind: str, seed: int):
    points = blobs(seed)
    theirs = max(GaussianMixture(3, covariance_type=kind, random_state=s).fit(points).score(points) for s in range(9))
    assert fit(points, 3, 9, kind, ridge=1e-06, max_steps=100).likelihood.max() > theirs - 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_scikit_learn_cannot_improve_on_a_loose_fit_from_where_it_ended(seed: int):
    """Loose groups have many local optima; each start must be at one, with the likelihood scikit-learn computes."""
    points = blobs(seed, spread=0.2)
    fits = fit(points, 3, 9, tolerance=1e-7, max_steps=2000, covariance="full", ridge=1e-06)
    for start in range(9):
        model = GaussianMixture(
            3,
            tol=1e-9,
            max_iter=500,
            weights_init=fits.weights[start] / fits.weights[start].sum(),
            means_init=fits.means[start],
            precisions_init=np.linalg.inv(fits.covariances[start]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = model.fit(points).score(points)
        assert again == pytest.approx(fits.likelihood[start], abs=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_bic_agrees_with_scikit_learns(kind: str):
    points = blobs(0)
    theirs = GaussianMixture(3, covariance_type=kind, random_state=0).fit(points)
    fits = fit(points, 3, 9, kind, ridge=1e-06, max_steps=100)
    best = int(fits.likelihood.argmax())
    assert bic(fits, kind)[best] == pytest.approx(theirs.bic(points), abs=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_finds_three_blobs_from_every_start(kind: str):
    fits = fit(blobs(1), 3, 9, kind, ridge=1e-06, max_steps=100)
    for members in fits.responsibilities.argmax(axis=2):
        assert sorted(np.bincount(members)) == [5, 6, 12]
    assert fits.responsibilities.sum(axis=2) == pytest.approx(1)
    assert fits.weights.sum(axis=1) == pytest.approx(1)


def test_more_steps_never_lower_the_likelihood():
    points = blobs(2, spread=0.3)
    values = [
        fit(points, 3, 4, max_steps=steps, tolerance=0, covariance="full", ridge=1e-06).likelihood
        for steps in range(1, 30)
    ]
    assert (np.diff(values, axis=0) > -1e-9).all()


def test_the_same_points_give_the_same_fit():
    one, two = (
        fit(blobs(3), 3, starts=9, covariance="full", ridge=1e-06, max_steps=100),
        fit(blobs(3), 3, starts=9, covariance="full", ridge=1e-06, max_steps=100),
    )
    assert (one.responsibilities == two.responsibilities).all()


@pytest.mark.parametrize("points", [np.zeros((6, 2)), np.array([[0.0, 1.0]] * 5 + [[1.0, 0.0]]), np.eye(3)[:, :2]])
def test_degenerate_points_give_finite_numbers(points: np.ndarray):
    fits = fit(points, 3, starts=9, covariance="full", ridge=1e-06, max_steps=100)
    assert np.isfinite(fits.likelihood).all()
    assert np.isfinite(fits.responsibilities).all()
