"""An audit in one place, from the clients' data to the files that the coordinator and the sites get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fedpca.atomic import locked
from fedpca.auditing.data import AuditData
from fedpca.auditing.estimate import Estimates, draws_list, estimate
from fedpca.auditing.files import site_folder, write_audit, write_site
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.record import Record, audit_record
from fedpca.auditing.run import Probs, Progress, cross_fit
from fedpca.auditing.summary import summarise
from fedpca.auditing.suspects import Suspect, find_suspects, with_cells
from fedpca.core import ClientId, Images, Net
from fedpca.settings.experiment import Experiment


@dataclass(frozen=True)
class Audited:
    """What an audit found: the record that the coordinator gets, and the rows of each site."""

    record: Record
    suspects: Mapping[ClientId, list[Suspect]]
    estimates: Estimates
    probs: Probs


def audit_clients(
    data: AuditData,
    experiment: Experiment,
    options: AuditOptions,
    out: Path,
    make: Callable[[], Net],
    workers: int = 1,
    progress: Progress | None = None,
    batched: bool = True,
) -> Audited:
    """Trains the models of all folds, judges every client and its rows, and writes all files."""
    probs = cross_fit(data, experiment, options, out, make, workers, progress, batched)
    found = judge_rows(data, options, probs)
    with locked(out / "work", f"{out} is being written by another process"):
        _write(out, data, options, found)
    return found


def judge_rows(data: AuditData, options: AuditOptions, probs: Probs) -> Audited:
    """What the probabilities say of every client and each of its rows."""
    estimates = estimate({client: summarise(own, data.shards[client].y) for client, own in probs.items()})
    suspects = {client: _suspects(data, options, estimates, client, own) for client, own in probs.items()}
    counts = {client: sum(own.is_issue for own in rows) for client, rows in suspects.items()}
    record = audit_record(estimates, options, data.classes, counts, judged=data.judged, not_tested=data.notes)
    return Audited(record, suspects, estimates, probs)


def _suspects(
    data: AuditData, options: AuditOptions, estimates: Estimates, client: ClientId, probs: Tensor
) -> list[Suspect]:
    rows, own = data.rows[client].tolist(), estimates.clients[client]
    found = find_suspects(
        probs,
        data.shards[client].y,
        estimates.calibration,
        data.classes,
        fdr=options.fdr if draws_list(own.verdict, own.list_warning) else 0.0,
        sample=options.sample,
        seed=options.seed,
        client=client,
        rows=rows,
        paths=data.paths[client],
    )
    return with_cells(found, rows, data.cells[client]) if client in data.cells else found


def _write(out: Path, data: AuditData, options: AuditOptions, found: Audited) -> None:
    """The folders of the sites first, what the coordinator gets last: audit.json marks a finished audit."""
    for entry in found.record["clients"]:
        client = entry["client"]
        pictures = partial(_some, data.pictures[client]) if client in data.pictures else None
        places = {row: place for place, row in enumerate(data.rows[client].tolist())}
        folder = out / site_folder(client)
        write_site(folder, entry, found.record, found.suspects[client], pictures, options.images, places)
    write_audit(out, found.record)


def _some(images: Images, places: list[int]) -> Tensor:
    return images[torch.tensor(places, dtype=torch.int64)]
