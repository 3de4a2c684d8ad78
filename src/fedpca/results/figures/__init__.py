"""Figures from run folders, as PNG and PDF; needs matplotlib, which comes with fedpca[results]."""

from __future__ import annotations

from fedpca.errors import UserError

try:
    import matplotlib  # noqa: F401
except ImportError:
    raise UserError("figures need matplotlib, which is not installed: pip install 'fedpca[results]'") from None

from fedpca.results.figures.registry import FIGURES, Drawn, Kind, write_figures

__all__ = ["FIGURES", "Drawn", "Kind", "write_figures"]
