"""What the numbers are computed with; no torch."""

from __future__ import annotations

import sys
from importlib.metadata import version

PACKAGES = ("fedpca", "torch", "numpy", "scikit-learn", "scipy")


def versions() -> dict[str, str]:
    """Python and the packages, by name."""
    return {"python": sys.version.split()[0], **{package: version(package) for package in PACKAGES}}
