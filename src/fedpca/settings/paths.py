"""Paths in a settings file: they are relative to that file."""

from __future__ import annotations

import os
from pathlib import Path

from fedpca.settings.base import Table
from fedpca.settings.experiment import IMAGENET
from fedpca.settings.toml import merge

KEYS = (
    ("data", "dataset"),
    ("data", "image_root"),
    ("data", "corrected_labels"),
    ("model", "weights"),
    ("noise", "file"),
)
ENDINGS = (".csv", ".npz", ".parquet")  # of a dataset, or of labels, in one file


def resolve_paths(table: Table, folder: Path) -> Table:
    """The table with the paths in it made absolute, from the folder of its file; names stay names.

    A path that is not there stays as it is, to be looked for in the data folder and in the current folder, unless it
    begins with a dot: then it can only mean the file's folder.
    """
    for outer, key in KEYS:
        inner = table.get(outer)
        value = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(value, str) and _is_path(key, value):
            beside = os.path.abspath(folder / value)
            if os.path.exists(beside) or value.startswith("."):
                table = merge(table, {outer: {key: beside}})
    return table


def _is_path(key: str, value: str) -> bool:
    if key in ("dataset", "file"):
        return "/" in value or os.sep in value or value.endswith(ENDINGS)
    return value != str(IMAGENET)
