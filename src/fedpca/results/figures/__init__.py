"""Figures from run folders, one kind per file; drawing needs matplotlib, which comes with fedpca[results]."""

from fedpca.results.figures.shared.registry import FIGURES, FigureKind, figure_names
from fedpca.results.figures.shared.write import FigureResult, write_figures

__all__ = ["FIGURES", "FigureKind", "FigureResult", "figure_names", "write_figures"]
