"""The clients of an audit in one place: all their rows, where each comes from, and the pictures to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.core import ClientId, Images, Shard
from fedpca.data.datasets import Dataset, Part, load
from fedpca.data.federation import Federation, federate
from fedpca.data.origin import Cells, cells_of, is_given, joined, origins
from fedpca.models.device import require_device
from fedpca.runs.backbone import look_through, with_features
from fedpca.settings.experiment import EvaluationSettings, Experiment

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AuditData:
    """What is audited."""

    shards: Mapping[ClientId, Shard]
    rows: Mapping[ClientId, NDArray[np.int64]]  # the number of each row in the data
    paths: Mapping[ClientId, tuple[str, ...]]
    pictures: Mapping[ClientId, Images]  # of each client, as they are; nothing of tables
    cells: Mapping[ClientId, tuple[Cells, ...]]  # what each row of a table says; nothing of images
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    judged: str  # "all" rows of each client, or those of the "train" part
    notes: tuple[tuple[ClientId | None, str, str], ...] = ()  # what cannot be tested, and why
    federation: Federation | None = None  # with the truth, for those who may know it: studies

    @property
    def fingerprint(self) -> str:
        """A name for these clients, their rows and labels."""
        digest = blake2b(digest_size=16)
        for client, shard in self.shards.items():
            digest.update(repr((client, len(shard.y), self.classes, self.shape)).encode())
            digest.update(shard.y.numpy().tobytes())
        return digest.hexdigest()


def audit_data(
    experiment: Experiment,
    rows: str = "all",
    data_dir: Path | None = None,
    progress: Progress | None = None,
    dataset: Dataset | None = None,
) -> AuditData:
    """The data that the settings name, or these, as an audit takes them."""
    require_device(experiment.device)
    if dataset is None:
        dataset = load(experiment.data, data_dir, progress=progress)
    train, test = origins(experiment.data, dataset, data_dir)
    corrected = experiment.data.corrected_labels is not None
    together = rows == "all" and _whose_rows_are_known(experiment, dataset)
    if together:
        if corrected:
            from fedpca.data.corrected import corrections_of

            dataset = corrections_of(experiment.data, dataset, data_dir).of_all(dataset)
            experiment = _with_data(experiment, corrected_labels=None)
        dataset, train = joined(dataset, train, test, is_given(experiment.data))
    experiment = _without_tests(experiment)
    look = look_through(experiment.model, experiment.device, progress)
    federation = federate(experiment, _tested_on_itself(dataset), data_dir, look)
    seen = with_features(federation, experiment.model, experiment.device, progress)
    notes = tuple((None, line, "it cannot be read") for line in dataset.skipped)
    return AuditData(
        seen.shards,
        {client: train.rows[own] for client, own in federation.rows.items()},
        {client: tuple(train.names[place] for place in own.tolist()) for client, own in federation.rows.items()},
        {} if dataset.table else {client: shard.x for client, shard in federation.shards.items()},
        {client: tuple(cells_of(dataset, own)) for client, own in federation.rows.items()} if dataset.table else {},
        federation.classes,
        seen.shape,
        "all" if together else "train",
        notes,
        seen,
    )


def _whose_rows_are_known(experiment: Experiment, dataset: Dataset) -> bool:
    """Whether the test part's rows belong to clients too: a column names them, and nothing is made wrong on purpose."""
    data = experiment.data
    injected = experiment.noise.injects or experiment.rare.share > 0
    return data.split == "column" and data.column in dataset.test.columns and not injected


def _tested_on_itself(dataset: Dataset) -> Dataset:
    """The dataset with one row of each class as its test part: an audit trains on all rows and tests no model."""
    part = dataset.train
    rows = np.sort(np.unique(part.labels, return_index=True)[1])
    columns = {name: values[rows] for name, values in part.columns.items()}
    return replace(dataset, test=Part(part.images[rows], part.labels[rows], columns))


def _without_tests(experiment: Experiment) -> Experiment:
    evaluation = EvaluationSettings(groups="kind", accuracy=experiment.evaluation.accuracy)
    changed = experiment.model_copy(update={"evaluation": evaluation})
    return _with_data(changed, test_images=None, validation_share=0.0)


def _with_data(experiment: Experiment, **changes: object) -> Experiment:
    return experiment.model_copy(update={"data": experiment.data.model_copy(update=changes)})
