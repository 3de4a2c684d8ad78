"""The page: results as one HTML file, and the same page of runs under way."""

from fedpca.results.page.page import write_page

__all__ = ["write_page"]
