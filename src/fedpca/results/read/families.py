"""Which family a method belongs to, in tables and figures alike, and where it stands in its family."""

from __future__ import annotations

from fedpca.settings.catalogue import METHODS
from fedpca.settings.names import parse

FAMILIES = {  # in the tables' order: heading
    "baseline": "Baseline",
    "fair": "Fair",
    "robust": "Robust",
    "fair + robust": "Fair + Robust",
    "ours": "FedPCA",
    "ablation": "Ablations",
    "drop": "With (D)",
    "outside": "Outside",
}
REFERENCE = "fedavg"  # what every other method is compared with


def family_of(method: str) -> str:
    """The family of a method, whose package is not imported."""
    simple, drops = parse(method)
    if drops:
        return "drop"
    if method.startswith("fedpca-wo-"):
        return "ablation"
    if method in METHODS:
        return METHODS[method].category
    return "outside" if len(simple) == 1 else "fair + robust"


def judges(method: str) -> bool:
    """Whether a method says who is mislabeled; one from outside is not known to."""
    simple, drops = parse(method)
    return drops or any(part in METHODS and METHODS[part].judges for part in (method, *simple))


def place_of(method: str) -> tuple[int, int]:
    """Where a method stands in tables: by family, then as in the list of methods."""
    return list(FAMILIES).index(family_of(method)), rank_of(method)


def rank_of(method: str) -> int:
    """Where a method stands in the list of methods; those from outside come last."""
    return [*METHODS, method].index(method)
