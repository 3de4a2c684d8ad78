"""What can be checked of a site's table of numbers before it joins, and what its sums would give away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedpca.data.datasets import Dataset
from fedpca.data.standardise import values_of
from fedpca.models.registry import MODELS
from fedpca.operate.findings import Finding
from fedpca.sites.columns import tell_columns

FEW = 2  # values that their sum and the sum of their squares determine


def check_table(dataset: Dataset, data: Path, model: str | None) -> Iterator[Finding]:
    """Rows and columns, whether the federation's model takes them, and which columns' sums tell single values."""
    rows = f"{len(dataset.train.labels)} rows to train on, {len(dataset.test.labels)} to test on"
    names = ", ".join(column.name for column in dataset.table)
    yield Finding("ok", f"{data}: {rows}, {len(dataset.classes)} classes, {len(dataset.table)} columns: {names}")
    if model and model in MODELS and not MODELS[model].takes_features:
        yield Finding("error", f"model {model} is for images, and {data} is a table", "ask for another model")
    told = tell_columns(dataset.table, values_of(dataset.train.images), with_sums=True, place=data)
    few = [head.name for head in told if head.kind == "number" and head.totals and head.totals.count <= FEW]
    if few:
        what = f"{', '.join(few)}: {FEW} values at most, which their sums tell to the server when the site joins"
        yield Finding("warning", what, "if that must not be, start the site with --set sums=false")
