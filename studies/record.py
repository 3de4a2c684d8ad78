"""Records what the clients of many federations report, once: `python -m studies.record OUT [--jobs N]`.

Ten rounds of FedAvg, then FedAvg without the truly mislabeled: what a rule sees as long as it is right.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch

from fedpca.atomic import write_whole
from fedpca.core import ClientId, Diagnosis, Method, Report, Server, Site, Stage, Verdict, When
from fedpca.data.datasets import load
from fedpca.data.federation import federate
from fedpca.loop import play
from fedpca.methods.base import base
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client.labels import label_slopes
from fedpca.parts.client.report import PerformanceAndCapacity, passes
from fedpca.parts.client.select import NothingOfTheMislabeled
from fedpca.runs.check import check_experiment, plan_of
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from studies.jobs import Spec, work_through

WARMUP, ROUNDS = 10, 25
RHO, ETA, RARE, SPLITS = (0.1, 0.2, 0.4, 0.6), (1.0, 0.8, 0.5, 0.3), (0.0, 0.1, 0.2), ("iid", "dirichlet")
DATA: dict[int, tuple[str, str, int | None, float, float]] = {  # by clients: data, model, images, sigma of the rare, lr
    10: ("digits", "cnn-small", None, 0.5, 0.1),
    20: ("digits", "cnn-small", None, 0.5, 0.1),
    50: ("fashion-mnist", "mlp", 5000, 1.0, 0.05),
}
CIFAR = ("cifar10", "cnn-small", 5000, 0.18, 0.05)
NULL_SEEDS = 6


def grid() -> Iterator[Spec]:
    """Every federation: with mislabeled clients once each, without them under several seeds; CIFAR-10 apart."""
    for clients, split, rare in product((20, 10, 50), SPLITS, RARE):
        for seed in range(NULL_SEEDS):
            yield {"clients": clients, "split": split, "rare": rare, "rho": 0.0, "eta": 0.0, "seed": seed}
        for rho, eta in product(RHO, ETA):
            yield {"clients": clients, "split": split, "rare": rare, "rho": rho, "eta": eta, "seed": 0}


def cifar_grid() -> Iterator[Spec]:
    """CIFAR-10 with a network too small for it: rare clients' dispersion above the common ones' at equal loss."""
    for rare, (rho, eta) in product((0.1, 0.2), ((0.0, 0.0), (0.2, 1.0), (0.4, 0.8), (0.4, 0.5))):
        yield {"clients": 50, "split": "iid", "rare": rare, "rho": rho, "eta": eta, "seed": 0, "cifar": True}


def fresh_grid() -> Iterator[Spec]:
    """Federations under seeds that no decision was made on, each of its own."""
    noises = ((0.0, 0.0), (0.2, 0.5), (0.6, 0.8), (0.4, 0.3))
    for number, (clients, (rho, eta), split, rare) in enumerate(product((10, 20), noises, SPLITS, (0.0, 0.2))):
        yield {"clients": clients, "split": split, "rare": rare, "rho": rho, "eta": eta, "seed": 100 + number}


def settings(spec: Spec) -> Experiment:
    """The experiment of one federation."""
    dataset, model, images, sigma, lr = CIFAR if spec.get("cifar") else DATA[int(str(spec["clients"]))]
    data = {
        "dataset": dataset,
        "clients": spec["clients"],
        "split": spec["split"],
        "seed": spec["seed"],
        "test_images": 300,
    }
    table = {
        "rounds": ROUNDS,
        "seeds": [spec["seed"]],
        "data": {**data, **({"train_images": images} if images else {})},
        "rare": {"share": spec["rare"], "sigma": sigma},
        "noise": {"clients": spec["rho"], "labels": spec["eta"]},
        "model": {"name": model},
        "training": {"batch": 16, "lr": lr},
    }
    return check_experiment(table, "studies")


@dataclass(frozen=True)
class Everything:
    """All that any of the compared rules looks at."""

    def __call__(self, site: Site) -> Report:
        probs = torch.cat([logits for _, logits in passes(site)]).double().softmax(dim=1)
        return {
            **PerformanceAndCapacity(
                confidence="quantile", labels=label_slopes, per_sample=True, denominator="all", augment=None
            )(site),
            "agreement": (probs.argmax(dim=1) == site.y).double().mean().item(),
            "certainty": probs.amax(dim=1).mean().item(),
            "credence": (probs.gather(1, site.y.unsqueeze(1)).mean() / probs.square().sum(dim=1).mean()).item(),
        }


@dataclass(frozen=True)
class Oracle:
    """Calls exactly the truly mislabeled so."""

    mislabeled: frozenset[ClientId]

    def __call__(self, diagnosis: Diagnosis, reports: Mapping[ClientId, Report], when: When) -> Diagnosis:
        new = {
            c: Verdict("mislabeled" if c in self.mislabeled else "common", report=r) for c, r in reports.items() if r
        }
        return {**diagnosis, **new}


def record(spec: Spec, out: Path) -> str:
    """Plays one federation and writes its reports, unless that was done before."""
    name = "-".join(f"{key}{value}" for key, value in spec.items())
    if (out / f"{name}.json").exists():
        return name
    experiment = settings(spec)
    federation = federate(experiment, load(experiment.data))
    warm = replace(base(plan_of(experiment)), report=Everything())
    oracle = Oracle(frozenset(federation.truth.mislabeled or ()))
    guarded = replace(warm, select=NothingOfTheMislabeled(), diagnose=oracle)
    net = build(experiment.model.name, federation.shape, len(federation.classes), experiment.seeds[0])
    method = Method("recording", (Stage(warm, WARMUP), Stage(guarded)))
    clients = InProcess(method, federation.shards, Workers([net]), experiment.seeds[0])
    rounds = [
        {client: verdict.report for client, verdict in server.diagnosis.items()}
        for server in play(method, clients, Server(params_of(net)), ROUNDS)
    ]
    truth = {"rare": federation.truth.rare, "mislabeled": federation.truth.mislabeled}
    write_whole(out / f"{name}.json", json.dumps({"spec": spec, "truth": truth, "rounds": rounds}))
    return name


def main() -> None:
    """Records the whole grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="32 federations that were held out")
    options = parser.parse_args()
    specs = list(fresh_grid()) if options.fresh else [*grid(), *cifar_grid()]
    work_through(record, specs, options.out, options.jobs)


if __name__ == "__main__":
    main()
