"""Federated learning via performance-capacity analysis: one model, many data owners, not all of them right."""

__version__ = "0.1.0"
