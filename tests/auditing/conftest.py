"""The browser of the tests of results, for the pages of audits too."""

from tests.results.conftest import browser, chromium

__all__ = ["browser", "chromium"]
