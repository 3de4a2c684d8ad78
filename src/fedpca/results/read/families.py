"""Which family a method belongs to, in tables and figures alike, and where it stands in its family."""

from __future__ import annotations

from fedpca.methods.define import FAMILIES
from fedpca.methods.registry import known_facts, method_names

REFERENCE = "fedavg"  # what every other method is compared with


def family_of(method: str) -> str:
    """The family of a method, whose package is not imported."""
    known = known_facts(method)
    return known.family if known else "outside"


def place_of(method: str) -> tuple[int, int]:
    """Where a method stands in tables: by family, then as in the list of methods."""
    return [*FAMILIES].index(family_of(method)), rank_of(method)


def rank_of(method: str) -> int:
    """Where a method stands in the list of methods; those from outside come last."""
    return [*method_names(), method].index(method)
