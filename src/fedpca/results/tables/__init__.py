"""Tables of what was measured: for terminals, Markdown, LaTeX, CSV and JSON, with the paper's numbers beside ours."""

from fedpca.results.tables.against import with_against
from fedpca.results.tables.clients import clients_as_csv
from fedpca.results.tables.formats import as_html, as_latex, as_markdown, as_rich
from fedpca.results.tables.paper import with_paper
from fedpca.results.tables.plain import as_csv, as_json, groups_as_csv
from fedpca.results.tables.rows import Results, tabulate
from fedpca.results.tables.sheets import for_pages, for_terminal

__all__ = [
    "Results",
    "as_csv",
    "as_html",
    "as_json",
    "as_latex",
    "as_markdown",
    "as_rich",
    "clients_as_csv",
    "for_pages",
    "for_terminal",
    "groups_as_csv",
    "tabulate",
    "with_against",
    "with_paper",
]
