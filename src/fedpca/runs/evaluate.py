"""Weights x test groups -> metrics; diagnosis and weights x truth -> how well the clients were judged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean

import torch

from fedpca.core import ClientId, Diagnosis, Net, Params, Shard, Weights
from fedpca.data.truth import Truth
from fedpca.models.flat import load
from fedpca.runs.metrics import Floats, Predictions, measure
from fedpca.simulate.workers import Workers

BATCH = 128  # test images per pass, as in reports

Metrics = dict[str, float]
COMMON, RARE = "common", "rare"  # test groups by kind, as `data.federation` names them


def evaluate(workers: Workers, params: Params, tests: Mapping[str, Shard], accuracy: str) -> dict[str, Metrics]:
    """Every recorded metric of the model with these weights, by test group."""
    return {
        group: measure(Predictions(probabilities(workers, params, test), test.y.numpy()), accuracy)
        for group, test in tests.items()
    }


def evaluate_own(
    workers: Workers, models: Mapping[ClientId, Params], tests: Mapping[str, Shard], truth: Truth, accuracy: str
) -> dict[str, Metrics]:
    """The same where each client has a model of its own: by test group the mean over the clients that belong to it."""
    found: dict[str, Metrics] = {}
    for group, test in tests.items():
        own = [evaluate(workers, models[client], {group: test}, accuracy) for client in members(group, models, truth)]
        found[group] = {name: fmean(seen[group][name] for seen in own) for name in own[0][group]}
    return found


def members(group: str, clients: Collection[ClientId], truth: Truth) -> list[ClientId]:
    """Whose models a test group is for: the client's of that name, the rare or the common ones', else everybody's."""
    if group in clients:
        return [group]
    kinds = {RARE: [c for c in clients if c in truth.rare], COMMON: [c for c in clients if c not in truth.rare]}
    return kinds.get(group) or list(clients)


def probabilities(workers: Workers, params: Params, test: Shard) -> Floats:
    """Softmax outputs (N, classes) in double precision."""

    @torch.no_grad()
    def work(net: Net, rows: torch.Tensor) -> torch.Tensor:
        load(net, params)
        net.module.eval()
        return net(test.x[rows]).cpu().double().softmax(dim=1)

    return torch.cat(list(workers.map(work, torch.split(torch.arange(len(test.y)), BATCH)))).numpy()


def identification(diagnosis: Diagnosis, truth: Truth) -> dict[str, float | int] | None:
    """How well the mislabeled clients are identified; None if the method judges nobody, or nobody knows the truth.

    If nobody is judged mislabeled precision is 1, and if nobody is mislabeled recall is 1: no judgement is wrong, and
    none is missing.
    """
    if truth.mislabeled is None or all(verdict.group is None for verdict in diagnosis.values()):
        return None
    judged = {client for client, verdict in diagnosis.items() if verdict.group == "mislabeled"}
    mislabeled = set(truth.mislabeled)
    found, wrongly = len(judged & mislabeled), judged - mislabeled
    precision = found / len(judged) if judged else 1.0
    recall = found / len(mislabeled) if mislabeled else 1.0
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if found or not (judged or mislabeled) else 0.0,
        "accused_common": len(wrongly - set(truth.rare)),
        "accused_rare": len(wrongly & set(truth.rare)),
    }


def weight_shares(weights: Weights | None, truth: Truth) -> dict[str, float] | None:
    """What the rare and the mislabeled clients weigh; None for rules without weights, and if nobody knows the truth."""
    if weights is None or truth.mislabeled is None:
        return None

    def together(clients: tuple[ClientId, ...]) -> float:
        return float(sum(weights.get(client, 0.0) for client in clients))

    return {"rare": together(truth.rare), "mislabeled": together(truth.mislabeled)}
