"""Trackers, one per file: rounds in TensorBoard, MLflow or Weights & Biases too; the run folder stays the record."""

from fedpca.runs.trackers.base import Log, Tracker, TrackerKind, scalars_of, settings_of
from fedpca.runs.trackers.logs import tracking
from fedpca.runs.trackers.registry import TRACKERS, choose

__all__ = ["TRACKERS", "Log", "Tracker", "TrackerKind", "choose", "scalars_of", "settings_of", "tracking"]
