"""What the metrics of a record are called; one from outside is shown under its own name, its package not imported."""

from __future__ import annotations

from fedpca.runs.metrics import METRICS


def metric_head(name: str) -> str:
    """Above a column."""
    return METRICS.own[name].head if name in METRICS.own else name.rpartition(":")[2]


def metric_words(name: str) -> str:
    """In a sentence, or beside an axis."""
    return METRICS.own[name].words if name in METRICS.own else name.rpartition(":")[2]


def in_tables(name: str) -> bool:
    """Whether files for scripts have it; some are only recorded."""
    return name not in METRICS.own or METRICS.own[name].in_tables
