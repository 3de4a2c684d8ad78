"""Records what the clients of many federations report, once: `python -m studies.record OUT [--kinds] [--jobs N]`.

Ten rounds of FedAvg, then FedAvg without the truly mislabeled: what a rule sees as long as it is right. The federations
are those of a grid or, with `--kinds`, of `studies.kinds`: the draws that decisions are made on, or `--held-out` ones.
A federation that is there already is not recorded again.
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
from fedpca.data.federation import Federation
from fedpca.loop import play
from fedpca.methods.base import base
from fedpca.models.build import build_model
from fedpca.models.flat import params_of
from fedpca.parts.client.labels import label_evidence
from fedpca.parts.client.report import PerformanceAndCapacity, passes
from fedpca.parts.client.select import NothingOfTheMislabeled
from fedpca.runs.check import check_experiment, plan_of
from fedpca.runs.run import prepare
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from studies.candidates import candidates
from studies.jobs import Spec, work_through
from studies.kinds import HELD_OUT, SEARCH, Case, cases, experiment

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
    """All that any of the compared rules looks at: loss, dispersion, what `auto` asks for, and every candidate."""

    def __call__(self, site: Site) -> Report:
        features, logits = (torch.cat(parts) for parts in zip(*passes(site), strict=True))
        shipped = PerformanceAndCapacity(
            confidence="quantile", labels=label_evidence, per_sample=True, denominator="all", augment=None
        )
        return {**shipped(site), **candidates(logits.double().softmax(dim=1), features, site.y)}


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
    """Plays one federation of a grid and writes its reports, unless that was done before."""
    name = "-".join(f"{key}{value}" for key, value in spec.items())
    if not (out / f"{name}.json").exists():
        chosen = settings(spec)
        about = {
            "kind": f"{chosen.data.dataset} with {spec['clients']} clients",
            "noise": f"symmetric {spec['eta']}" if spec["rho"] else "none",
        }
        _write(out / f"{name}.json", about, chosen)
    return name


def record_case(case: Case, out: Path) -> str:
    """Plays one federation of `studies.kinds` and writes its reports, unless that was done before."""
    if not (out / f"{case.name}.json").exists():
        about = {"kind": case.kind.family, "noise": case.noise}
        _write(out / f"{case.name}.json", about, experiment(case, out / "data"))
    return case.name


def _write(path: Path, about: Mapping[str, str], chosen: Experiment) -> None:
    _, federation = prepare(chosen)
    known = federation.truth
    truth = {"rare": known.rare, "mislabeled": known.mislabeled, "wrong_share": dict(known.wrong_share)}
    recording = {**about, "truth": truth, "rounds": reports_of(chosen, federation)}
    write_whole(path, json.dumps(recording))


def reports_of(chosen: Experiment, federation: Federation) -> list[dict[ClientId, Report]]:
    """What the clients report in every round after the warm-up, which is all that rules look at."""
    warm = base(plan_of(chosen))
    oracle = Oracle(frozenset(federation.truth.mislabeled or ()))
    guarded = replace(warm, report=Everything(), select=NothingOfTheMislabeled(), diagnose=oracle)
    net = build_model(chosen.model, federation.shape, len(federation.classes), chosen.seeds[0])
    method = Method("recording", (Stage(warm, WARMUP), Stage(guarded)))
    clients = InProcess(method, federation.shards, Workers([net]), chosen.seeds[0])
    return [
        {client: verdict.report for client, verdict in server.diagnosis.items()}
        for server in play(method, clients, Server(params_of(net)), ROUNDS)
        if server.round > WARMUP
    ]


def chosen_cases(draws: tuple[int, ...], only: str) -> list[Case]:
    """The federations of these draws whose name has this in it; last those on features, which take long to be made."""
    found = [case for case in cases(draws) if only in case.name]
    return sorted(found, key=lambda case: "backbone" in case.kind.model)


def main() -> None:
    """Records a grid, or the federations of many kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="32 federations that were held out of the grid")
    parser.add_argument("--kinds", action="store_true", help="the federations of studies.kinds, in place of the grid")
    parser.add_argument("--held-out", action="store_true", help="with --kinds: draws that no decision is made on")
    parser.add_argument("--only", default="", help="with --kinds: federations whose name has this in it")
    options = parser.parse_args()
    if options.kinds:
        chosen = chosen_cases(HELD_OUT if options.held_out else SEARCH, options.only)
        work_through(record_case, chosen, options.out, options.jobs)
    else:
        specs = list(fresh_grid()) if options.fresh else [*grid(), *cifar_grid()]
        work_through(record, specs, options.out, options.jobs)


if __name__ == "__main__":
    main()
