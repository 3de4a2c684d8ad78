"""Gaussian mixtures on a handful of points: many starts fitted at once, each step a few products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RIDGE, MAX_STEPS, TOLERANCE = 1e-6, 100, 1e-3  # scikit-learn's
STARTS = 5  # of a mixture of numbers on a line
LLOYD_STEPS = 10  # of k-means, from which the fit starts
LOG_TAU = float(np.log(2 * np.pi))
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
    starts: int,
    covariance: Covariance,
    ridge: float,
    max_steps: int,
    tolerance: float = TOLERANCE,
) -> Fits:
    """Expectation-maximisation from k-means, from as many starts at once; they stop when the last one has converged.

    Points (K, D). Algorithm and defaults are those of scikit-learn's `GaussianMixture`, which fits one start at a time
    and spends most of that on checks when K is small.
    """
    centre = points.mean(axis=0)
    terms = _terms(points - centre)
    resp = _members(_k_means(points, components, starts), components)  # (S, G, K): sums over components are fast
    before, least = np.full(starts, -np.inf), ridge * np.eye(points.shape[1])
    for _ in range(max_steps):
        weights, means, covariances = _maximise(terms, resp, covariance, least)
        log_prob = _log_prob(terms, weights, means, covariances)
        top = log_prob.max(axis=1, keepdims=True)
        resp = np.exp(log_prob - top)
        total = resp.sum(axis=1, keepdims=True)
        resp /= total
        likelihood = (top + np.log(total)).reshape(starts, -1).mean(axis=1)
        if np.abs(likelihood - before).max() < tolerance:
            break
        before = likelihood
    return Fits(weights, means + centre, covariances, resp.transpose(0, 2, 1), likelihood)


def in_upper_group(values: Floats) -> NDArray[np.bool_]:
    """Which values (N,) belong to the component of larger mean of a mixture of two; none if all are alike."""
    points = values.reshape(-1, 1)
    if len(points) == 0 or np.ptp(points) <= 1e-6 * np.abs(points).max():
        return np.zeros(len(values), dtype=bool)
    fits = fit(points, 2, STARTS, "full", RIDGE, MAX_STEPS)
    best = int(np.nanargmax(fits.likelihood))
    upper = int(fits.means[best, :, 0].argmax())
    return np.asarray(fits.responsibilities[best].argmax(axis=1) == upper)


def bic(fits: Fits, covariance: Covariance) -> Floats:
    """The Bayesian information criterion of each start (S,): less is better."""
    (_, components, dim), points = fits.means.shape, fits.responsibilities.shape[1]
    symmetric = dim * (dim + 1) // 2
    spread = {"full": components * symmetric, "tied": symmetric, "diag": components * dim, "spherical": components}
    parameters = components - 1 + components * dim + spread[covariance]
    value: Floats = -2 * points * fits.likelihood + parameters * np.log(points)
    return value


def _k_means(points: Floats, components: int, starts: int) -> NDArray[np.int64]:
    """Cluster of each point per start (S, K): k-means++ seeds 0, 1, 2, …, then a few rounds of Lloyd's algorithm."""
    centres = _spread_seeds(points, components, starts)
    clusters = _nearest(points, centres)
    for _ in range(LLOYD_STEPS):
        members = _members(clusters, components)
        sizes = members.sum(axis=2, keepdims=True)  # (S, G, 1)
        centres = np.where(sizes > 0, members @ points / np.maximum(sizes, 1), centres)
        before, clusters = clusters, _nearest(points, centres)
        if np.array_equal(before, clusters):  # nothing would change any more
            break
    return clusters


def _spread_seeds(points: Floats, components: int, starts: int) -> Floats:
    """Points (S, G, D) drawn one after another, the likelier the farther from those drawn before (k-means++)."""
    first, chances = _drawn(len(points), components, starts)
    chosen, distance = [points[first]], np.full((starts, len(points)), np.inf)
    for chance in chances:
        distance = np.minimum(distance, _squared(points, chosen[-1]))
        below = distance.cumsum(axis=1)
        far = below[:, -1:] > 0  # else all points are where those drawn are
        below /= np.where(far, below[:, -1:], 1.0)
        picked = points[np.minimum((below <= chance[:, None]).sum(axis=1), len(points) - 1)]
        chosen.append(np.where(far, picked, chosen[0]))
    return np.stack(chosen, axis=1)


@lru_cache
def _drawn(count: int, components: int, starts: int) -> tuple[NDArray[np.int64], Floats]:
    """Each start's first point (S,), and a random number for each further one (G - 1, S): of seeds 0, 1, 2, …"""
    streams = [np.random.default_rng(seed) for seed in range(starts)]
    first = np.array([stream.integers(count) for stream in streams])
    return first, np.array([stream.random(components - 1) for stream in streams]).T


def _terms(points: Floats) -> Floats:
    """1, the coordinates and their products (K, 1 + D + D²): moments and log densities are linear in them."""
    products = (points[:, :, None] * points[:, None, :]).reshape(len(points), -1)
    return np.hstack([np.ones((len(points), 1)), points, products])


def _maximise(terms: Floats, resp: Floats, covariance: Covariance, least: Floats) -> tuple[Floats, Floats, Floats]:
    points, dim = len(terms), len(least)
    sums = (resp.reshape(-1, points) @ terms).reshape(*resp.shape[:2], -1)  # (S, G, 1 + D + D²), as one product
    sizes = sums[:, :, 0] + 10 * np.finfo(np.float64).eps
    moments = sums[:, :, 1:] / sizes[..., None]
    means, seconds = moments[:, :, :dim], moments[:, :, dim:].reshape(*sizes.shape, dim, dim)
    covs = seconds - means[..., None] * means[..., None, :]
    if covariance == "tied":
        covs = np.broadcast_to(np.einsum("sg,sgij->sij", sizes / points, covs)[:, None], covs.shape)
    elif covariance in ("diag", "spherical"):
        variance = np.diagonal(covs, axis1=2, axis2=3)
        if covariance == "spherical":
            variance = np.repeat(variance.mean(axis=2, keepdims=True), dim, axis=2)
        covs = variance[..., None] * np.eye(dim)
    return sizes / points, means, covs + least


def _log_prob(terms: Floats, weights: Floats, means: Floats, covariances: Floats) -> Floats:
    """Log of weight times density (S, G, K): a quadratic form, written as a product with the terms."""
    dim = means.shape[2]
    precision = np.linalg.inv(covariances)
    towards = np.einsum("sgij,sgj->sgi", precision, means)
    log_det = np.linalg.slogdet(covariances)[1]
    constant = np.log(weights) - 0.5 * (dim * LOG_TAU + log_det + np.einsum("sgi,sgi->sg", means, towards))
    flat = precision.reshape(*weights.shape, dim * dim)
    factors = np.concatenate([constant[..., None], towards, -0.5 * flat], axis=2)  # (S, G, 1 + D + D²)
    log_prob: Floats = (factors.reshape(-1, terms.shape[1]) @ terms.T).reshape(*weights.shape, -1)
    return log_prob


def _nearest(points: Floats, centres: Floats) -> NDArray[np.int64]:
    """Which centre (S, G, D) is nearest to each point (S, K); of several the first."""
    nearest: NDArray[np.int64] = _squared(points, centres).argmin(axis=1)
    return nearest


def _squared(points: Floats, centres: Floats) -> Floats:
    """The squared distances of centres (…, D) to points (…, K)."""
    squared: Floats = (points[:, 0] - centres[..., :1]) ** 2
    for axis in range(1, points.shape[1]):
        squared += (points[:, axis] - centres[..., axis : axis + 1]) ** 2
    return squared


def _members(clusters: NDArray[np.int64], components: int) -> Floats:
    """1 where a point (S, K) is in a component, else 0: (S, G, K)."""
    members: Floats = (clusters[:, None] == np.arange(components)[:, None]).astype(np.float64)
    return members
