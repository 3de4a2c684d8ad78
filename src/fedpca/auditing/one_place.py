"""`fedpca audit` of what a person names, from the source to the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedpca.auditing.audit import Audited, audit_clients
from fedpca.auditing.data import AuditData, audit_data
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.sources import read_source
from fedpca.core import Net
from fedpca.models.build import build_model
from fedpca.models.pretrained import weights_of
from fedpca.runs.jobs import default_workers
from fedpca.settings.experiment import Experiment

Progress = Callable[[int, int], None]


def audit_source(
    sources: Sequence[str],
    column: str | None,
    changes: Sequence[str],
    options: AuditOptions,
    out: Path,
    workers: int | None = None,
    data_dir: Path | None = None,
    reading: Progress | None = None,
    training: Progress | None = None,
) -> Audited:
    """Audits settings, an experiment or data; `reading` and `training` are told how far it is."""
    experiment, dataset = read_source(sources, column, changes, reading)
    data = audit_data(experiment, options.rows, data_dir, reading, dataset)
    named = {"name": experiment.name, "settings": {**experiment.method, **options.settings}}
    own = options.model_copy(update=named)
    make = net_maker(experiment, data, options.seed)
    assert data.federation is not None
    count = workers or default_workers(experiment, data.federation, probe=make())
    return audit_clients(data, experiment, own, out, make, count, training)


def net_maker(experiment: Experiment, data: AuditData, seed: int) -> Callable[[], Net]:
    """What makes the model, with the same first weights each time."""
    place = (experiment.model, data.shape, len(data.classes), seed, weights_of(experiment.model), experiment.device)
    return lambda: build_model(*place)
