"""A site's own rules, as its file says them; this module needs no PyTorch.

A file that cannot be read, or has a key that is not known, is an error: nothing is sent by mistake.
"""

from __future__ import annotations

import json
from pathlib import Path

from fedpca.settings.base import Count, Names, Positive, Settings
from fedpca.settings.privacy import Delta
from fedpca.settings.toml import read_table, validate

POLICY = "site-policy.toml"  # in a site's store, where its settings name no other


class Policy(Settings):
    """What `site-policy.toml` may say; what it does not name is allowed."""

    methods: Names | None = None  # that may run here, as names or shell patterns: ["fedavg", "fedpca*"]
    reports: Names | None = None  # numbers of reports that may leave, the same: ["loss", "class_*"]
    max_rounds: Count | None = None  # of a run
    max_parameters: Count | None = None  # numbers of a model
    max_bytes: Count | None = None  # of a model
    max_epsilon: Positive | None = None  # of the numbers of reports, in all runs together; a run must have one then
    delta: Delta = 1e-5  # of the same
    evaluation: bool = True  # whether the metrics of the model on held-out rows may leave
    audit: bool = True  # whether the labels may be audited


def policy_file(named: Path | None, store: Path) -> Path | None:
    """Where a site's policy stands; None where it has none. A file that is named must be there."""
    path = named or store / POLICY
    if named is None and not path.exists() and not path.is_symlink():
        return None
    return path


def read_policy(path: Path) -> Policy:
    """A policy file's rules; whatever is wrong with it is an error, so that nothing leaves."""
    return validate(Policy, read_table(path), str(path))


def told(policy: Policy, path: Path) -> str:
    """A policy in a line for people."""
    rules = policy.model_dump(mode="json", exclude_defaults=True)
    named = ", ".join(f"{key} = {json.dumps(value)}" for key, value in rules.items())
    return f"policy {path}: {named or 'everything is allowed'}"
