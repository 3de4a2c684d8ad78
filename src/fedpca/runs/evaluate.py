"""Weights x test groups -> metrics; diagnosis and weights x truth -> how well the clients were judged."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from fedpca.core import ClientId, Diagnosis, Net, Params, Shard, Weights
from fedpca.data.federation import Truth
from fedpca.models.flat import load
from fedpca.simulate.clients import Workers

BATCH = 128  # test images per pass, as in reports

Metrics = dict[str, float]
Floats = NDArray[np.float64]


def evaluate(workers: Workers, params: Params, tests: Mapping[str, Shard]) -> dict[str, Metrics]:
    """Accuracy, balanced accuracy and both AUCs of the model with these weights, per test group."""
    return {group: metrics(probabilities(workers, params, test), test.y.numpy()) for group, test in tests.items()}


def probabilities(workers: Workers, params: Params, test: Shard) -> Floats:
    """Softmax outputs (N, classes) in double precision."""

    @torch.no_grad()
    def work(net: Net, rows: torch.Tensor) -> torch.Tensor:
        load(net, params)
        net.module.eval()
        return net(test.x[rows]).cpu().double().softmax(dim=1)

    return torch.cat(list(workers.map(work, torch.split(torch.arange(len(test.y)), BATCH)))).numpy()


def metrics(probs: Floats, labels: NDArray[np.int64]) -> Metrics:
    """acc, bacc, auc (macro one-versus-rest) and auc_ovo (macro one-versus-one) over the classes that occur."""
    hits, counts = probs.argmax(axis=1) == labels, np.bincount(labels, minlength=probs.shape[1])
    there = np.flatnonzero(counts)
    if len(there) < 2:
        raise ValueError(f"a test group needs at least two classes, came only class {there[0] if len(there) else '-'}")
    recalls = np.bincount(labels[hits], minlength=len(counts))[there] / counts[there]
    pairs, sizes = pairwise_auc(probs, labels)[np.ix_(there, there)], counts[there].astype(np.float64)
    others = sizes * (1 - np.eye(len(there)))  # (positive class, other class)
    return {
        "acc": float(hits.mean()),
        "bacc": float(recalls.mean()),
        "auc": float(((pairs * others).sum(axis=1) / others.sum(axis=1)).mean()),
        "auc_ovo": float(pairs[~np.eye(len(there), dtype=bool)].mean()),
    }


def pairwise_auc(probs: Floats, labels: NDArray[np.int64]) -> Floats:
    """A[i, j]: the chance that class i's probability is larger for a sample of class i than for one of class j.

    Both AUCs are means of this one matrix (Hand and Till 2001); ties count half. 0 where a class does not occur.
    """
    classes = probs.shape[1]
    counts = np.bincount(labels, minlength=classes)
    result = np.zeros((classes, classes))
    for positive in range(classes):
        scores = probs[:, positive]
        order = np.argsort(scores, kind="stable")
        below = np.zeros((len(labels) + 1, classes))  # how many samples of each class lie below each rank
        np.cumsum(np.eye(classes)[labels[order]], axis=0, out=below[1:])
        own, ranked = scores[labels == positive], scores[order]
        beaten = below[np.searchsorted(ranked, own, "left")] + below[np.searchsorted(ranked, own, "right")]
        result[positive] = beaten.sum(axis=0) / 2 / np.maximum(counts * counts[positive], 1)
    return result


def identification(diagnosis: Diagnosis, truth: Truth) -> dict[str, float | int] | None:
    """How well the mislabeled were named; None if the method names no groups.

    With nobody named precision is 1, with nobody to name recall is 1: then no accusation is wrong, and none is missing.
    """
    if all(verdict.group is None for verdict in diagnosis.values()):
        return None
    accused = {client for client, verdict in diagnosis.items() if verdict.group == "mislabeled"}
    guilty = set(truth.mislabeled)
    found, wrongly = len(accused & guilty), accused - guilty
    precision = found / len(accused) if accused else 1.0
    recall = found / len(guilty) if guilty else 1.0
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if found or not (accused or guilty) else 0.0,
        "accused_common": len(wrongly - set(truth.rare)),
        "accused_rare": len(wrongly & set(truth.rare)),
    }


def weight_shares(weights: Weights | None, truth: Truth) -> dict[str, float] | None:
    """What the rare and the mislabeled clients weigh together; None for rules without weights."""
    if weights is None:
        return None

    def together(clients: tuple[ClientId, ...]) -> float:
        return float(sum(weights.get(client, 0.0) for client in clients))

    return {"rare": together(truth.rare), "mislabeled": together(truth.mislabeled)}
