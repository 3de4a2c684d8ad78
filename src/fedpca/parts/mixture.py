"""Gaussian mixtures on a handful of points: many starts fitted at once, in closed form for the plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Covariance = Literal["full", "tied", "diag", "spherical"]


@dataclass(frozen=True)
class Fits:
    """One fitted mixture per start: S starts, G components, K points of dimension D."""

    weights: Floats  # (S, G)
    means: Floats  # (S, G, D)
    covariances: Floats  # (S, G, D, D)
    responsibilities: Floats  # (S, K, G)
    likelihood: Floats  # (S,) mean log-likelihood of a point


def fit(
    points: Floats,
    components: int,
    starts: int = 9,
    covariance: Covariance = "full",
    ridge: float = 1e-6,
    most: int = 100,
    tolerance: float = 1e-3,
) -> Fits:
    """Expectation-maximisation from k-means, from as many starts at once; they stop when the last one has converged.

    Points (K, D). Algorithm and defaults are those of scikit-learn's `GaussianMixture`, which fits one start at a time
    and spends most of that on checks when K is small.
    """
    resp = _one_hot(_k_means(points, components, starts), components)
    before = np.full(starts, -np.inf)
    for _ in range(most):
        weights, means, covariances = _maximise(points, resp, covariance, ridge)
        log_prob = np.log(weights)[:, None, :] + _log_density(points, means, covariances)  # (S, K, G)
        norm = _log_sum(log_prob)
        resp, likelihood = np.exp(log_prob - norm[..., None]), norm.mean(axis=1)
        if np.all(np.abs(likelihood - before) < tolerance):
            break
        before = likelihood
    return Fits(weights, means, covariances, resp, likelihood)


def bic(fits: Fits, covariance: Covariance) -> Floats:
    """The Bayesian information criterion of each start (S,): less is better."""
    (_, components, dim), points = fits.means.shape, fits.responsibilities.shape[1]
    symmetric = dim * (dim + 1) // 2
    spread = {"full": components * symmetric, "tied": symmetric, "diag": components * dim, "spherical": components}
    parameters = components - 1 + components * dim + spread[covariance]
    value: Floats = -2 * points * fits.likelihood + parameters * np.log(points)
    return value


def _k_means(points: Floats, components: int, starts: int, steps: int = 10) -> NDArray[np.int64]:
    """Cluster of each point per start (S, K): k-means++ seeds 0, 1, 2, …, then a few rounds of Lloyd's algorithm."""
    centres = np.stack([_spread_seeds(points, components, np.random.default_rng(seed)) for seed in range(starts)])
    clusters: NDArray[np.int64] = _distances(points, centres).argmin(axis=2)
    for _ in range(steps):
        members = _one_hot(clusters, components)
        sizes = members.sum(axis=1)[..., None]  # (S, G, 1)
        centres = np.where(sizes > 0, members.transpose(0, 2, 1) @ points / np.maximum(sizes, 1), centres)
        before, clusters = clusters, _distances(points, centres).argmin(axis=2)
        if np.array_equal(before, clusters):  # nothing would change any more
            break
    return clusters


def _spread_seeds(points: Floats, components: int, rng: np.random.Generator) -> Floats:
    """Points drawn one after another with chances that grow with the distance to those drawn before (k-means++)."""
    chosen, distance = [points[rng.integers(len(points))]], None
    while len(chosen) < components:
        last = ((points - chosen[-1]) ** 2).sum(axis=1)
        distance = last if distance is None else np.minimum(distance, last)
        if not distance.any():  # all points are where those drawn are
            chosen.append(chosen[0])
            continue
        below = (distance / distance.sum()).cumsum()  # drawn as `rng.choice` does, without its checks
        chosen.append(points[np.searchsorted(below / below[-1], rng.random(), side="right")])
    return np.stack(chosen)


def _maximise(points: Floats, resp: Floats, covariance: Covariance, ridge: float) -> tuple[Floats, Floats, Floats]:
    sizes = resp.sum(axis=1) + 10 * np.finfo(np.float64).eps  # (S, G)
    means = np.einsum("skg,kd->sgd", resp, points) / sizes[..., None]
    away = points[None, None] - means[:, :, None]  # (S, G, K, D)
    weighted = resp.transpose(0, 2, 1)[..., None] * away
    covs = weighted.transpose(0, 1, 3, 2) @ away / sizes[..., None, None]
    dim = points.shape[1]
    if covariance == "tied":
        covs = np.broadcast_to(np.einsum("sg,sgij->sij", sizes / len(points), covs)[:, None], covs.shape)
    elif covariance in ("diag", "spherical"):
        variance = np.diagonal(covs, axis1=2, axis2=3)
        if covariance == "spherical":
            variance = np.repeat(variance.mean(axis=2, keepdims=True), dim, axis=2)
        covs = variance[..., None] * np.eye(dim)
    return sizes / len(points), means, covs + ridge * np.eye(dim)


def _log_density(points: Floats, means: Floats, covariances: Floats) -> Floats:
    """Log densities (S, K, G)."""
    away = points[None, None] - means[:, :, None]  # (S, G, K, D)
    precision = np.linalg.inv(covariances)
    mahalanobis = ((away @ precision) * away).sum(axis=3).transpose(0, 2, 1)
    log_det = np.linalg.slogdet(covariances)[1][:, None, :]
    density: Floats = -0.5 * (points.shape[1] * np.log(2 * np.pi) + log_det + mahalanobis)
    return density


def _log_sum(values: Floats) -> Floats:
    top = values.max(axis=2, keepdims=True)
    total: Floats = (top + np.log(np.exp(values - top).sum(axis=2, keepdims=True)))[..., 0]
    return total


def _distances(points: Floats, centres: Floats) -> Floats:
    squared: Floats = ((points[None, :, None] - centres[:, None]) ** 2).sum(axis=3)
    return squared


def _one_hot(clusters: NDArray[np.int64], components: int) -> Floats:
    members: Floats = np.eye(components)[clusters]
    return members
