"""How well an audit estimates and finds wrong labels: `python -m studies.audit OUT`, then `--table`.

CIFAR-10 with people's labels (CIFAR-10N) and with labels made wrong: 20 and 50 clients of 250 images, five of them with
wrong labels, on frozen features. Decisions were made on seeds below 100; what is published is of seeds 200 to 202.
Beside it, `make bench-cleanlab` runs cleanlab on all clients' data together, with the same features.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from fedpca.atomic import write_json
from fedpca.auditing.audit import Audited, judge_rows
from fedpca.auditing.data import AuditData, audit_data
from fedpca.auditing.one_place import net_maker
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.run import cross_fit
from fedpca.auditing.summary import label_scores
from fedpca.runs.check import check_experiment
from fedpca.settings.base import Table
from fedpca.settings.experiment import Experiment
from studies.jobs import work_through

SEEDS, CLIENTS, IMAGES, MISLABELED = (200, 201, 202), (20, 50), 250, 5
PEOPLE: Table = {"kind": "given", "file": "cifar10n"}
NOISES: Mapping[str, Table] = {
    "symmetric 0.4, others clean": {"labels": 0.4},
    "pair 0.4, others clean": {"labels": 0.4, "kind": "pair"},
    "confusion 0.4, others clean": {"labels": 0.4, "kind": "confusion", "matrix": "model"},
    "people worst, others clean": {**PEOPLE, "column": "worst"},
    "people random1, others clean": {**PEOPLE, "column": "random1"},
    "people worst, others aggregate": {**PEOPLE, "column": "worst", "others": "aggregate"},
    "people random1, others aggregate": {**PEOPLE, "column": "random1", "others": "aggregate"},
}

HEADS = (
    "labels of five clients, of the others",
    "clients",
    "seeds",
    "error of the share",
    "of the five",
    "in the interval",
    "width",
    "five found",
    "innocents judged",
    "list: precision",
    "recall",
    "AUROC",
    "cleanlab's",
)


@dataclass(frozen=True)
class Case:
    """One federation."""

    noise: str
    clients: int
    seed: int

    @property
    def name(self) -> str:
        """Also of its files."""
        return f"{self.noise.replace(', ', '-').replace(' ', '_')}-{self.clients}-{self.seed}"

    @property
    def features(self) -> str:
        """The file of its images' features, which federations of other labels share."""
        return f"features-{self.clients}-{self.seed}.npy"


def cases(seeds: Sequence[int] = SEEDS) -> list[Case]:
    """Seed by seed, so that a study that is not finished says something of all kinds."""
    return [Case(noise, clients, seed) for seed in seeds for clients in CLIENTS for noise in NOISES]


def experiment(case: Case) -> Experiment:
    """The settings of a federation."""
    noise = {**NOISES[case.noise], "clients": MISLABELED / case.clients}
    data = {"dataset": "cifar10", "clients": case.clients, "train_images": IMAGES * case.clients, "seed": case.seed}
    model = {"name": "mlp-16", "backbone": "efficientnet-lite0", "backbone_size": 72}
    table = {"data": data, "noise": noise, "model": model, "training": {"batch": 16, "lr": 0.03}}
    return check_experiment(table, "studies.audit")


def study(case: Case, out: Path) -> str:
    """Audits a federation that was not audited before, and writes its figures and the labels for cleanlab."""
    if (out / f"{case.name}.json").exists():
        return case.name
    settings, options = experiment(case), AuditOptions(seed=case.seed)
    data = audit_data(settings)
    probs = cross_fit(data, settings, options, out / "work" / case.name, net_maker(settings, data, case.seed))
    found = judge_rows(data, options, probs)
    _write_pooled(case, data, out)
    write_json(out / f"{case.name}.json", figures(data, found))
    return case.name


def _write_pooled(case: Case, data: AuditData, out: Path) -> None:
    """All clients' features, labels and which of these are wrong, as a central tool would see them."""
    given, true = _labels(data)
    if not (out / case.features).exists():
        images = [shard.x[torch.arange(len(shard.y))].flatten(1) for shard in data.shards.values()]
        np.save(out / case.features, torch.cat(images).numpy())
    np.savez(out / f"{case.name}.npz", y=given, wrong=given != true, features=np.array(case.features))


def _labels(data: AuditData) -> tuple[np.ndarray, np.ndarray]:
    assert data.federation is not None
    true = data.federation.truth.labels
    return (
        torch.cat([shard.y for shard in data.shards.values()]).numpy(),
        torch.cat([true[client] for client in data.shards]).numpy(),
    )


def figures(data: AuditData, found: Audited) -> dict[str, object]:
    """How far the audit is from the truth."""
    given, true = _labels(data)
    assert data.federation is not None
    truth = data.federation.truth
    shares = {client: truth.wrong_share[client] for client in data.shards}
    told = {entry["client"]: entry for entry in found.record["clients"]}
    wrong = given != true
    scores = torch.cat([label_scores(found.probs[c], data.shards[c].y) for c in data.shards]).numpy()
    listed = {c: {own.row for own in rows if own.is_issue} for c, rows in found.suspects.items()}
    flags = np.concatenate([[row in listed[c] for row in data.rows[c].tolist()] for c in data.shards])
    untold = [c for c in told if told[c]["share"] is None]
    return {
        "error": fmean(abs((told[c]["share"] or 0.0) - shares[c]) for c in shares),
        "error_of_mislabeled": fmean(abs((told[c]["share"] or 0.0) - shares[c]) for c in truth.mislabeled or ()),
        "covered": sum(c in untold or told[c]["low"] <= shares[c] <= told[c]["high"] for c in shares),
        "width": fmean((told[c]["high"] or 1.0) - (told[c]["low"] or 0.0) for c in shares),
        "clients": len(shares),
        "untold": len(untold),
        "found": sum(told[c]["verdict"] == "mislabeled" for c in truth.mislabeled or ()),
        "innocents": sum(told[c]["verdict"] == "mislabeled" for c in shares if c not in (truth.mislabeled or ())),
        "listed": int(flags.sum()),
        "listed_wrong": int((flags & wrong).sum()),
        "wrong": int(wrong.sum()),
        "auroc": float(roc_auc_score(wrong, 1 - scores)),
    }


def table(out: Path) -> None:
    """One line for each kind of labels and number of clients, means over the seeds that are there."""
    print(f"| {' | '.join(HEADS)} |\n|---|{'---:|' * (len(HEADS) - 1)}")
    for noise in NOISES:
        for clients in CLIENTS:
            some = [case for case in cases() if (case.noise, case.clients) == (noise, clients)]
            if found := [(case, own) for case in some if (own := _read(out / f"{case.name}.json"))]:
                print(_line(out, noise, clients, found))


def _line(out: Path, noise: str, clients: int, found: Sequence[tuple[Case, dict[str, float]]]) -> str:
    rows = [own for _, own in found]

    def total(key: str) -> float:
        return sum(row[key] for row in rows)

    peers = [own["auroc"] for case, _ in found if (own := _read(out / f"{case.name}.cleanlab.json"))]
    cells = (
        noise,
        clients,
        " ".join(str(case.seed) for case, _ in found),
        f"{fmean(row['error'] for row in rows):.3f}",
        f"{fmean(row['error_of_mislabeled'] for row in rows):.3f}",
        f"{total('covered') / total('clients'):.3f}",
        f"{fmean(row['width'] for row in rows):.2f}",
        f"{total('found'):.0f} of {MISLABELED * len(rows)}",
        f"{total('innocents'):.0f} of {total('clients') - MISLABELED * len(rows):.0f}",
        f"{total('listed_wrong') / total('listed'):.3f}" if total("listed") else "nobody listed",
        f"{total('listed_wrong') / total('wrong'):.3f}",
        f"{fmean(row['auroc'] for row in rows):.4f}",
        f"{fmean(peers):.4f}" if len(peers) == len(rows) else "not run",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _read(path: Path) -> dict[str, float] | None:
    return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    """Audits what is missing, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        table(options.out)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    work_through(study, cases(options.seeds), options.out, options.jobs)


if __name__ == "__main__":
    main()
