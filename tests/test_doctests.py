"""Every public name's docstring has an example, and it runs as it stands there."""

import doctest
import sys
from pathlib import Path

import pytest

import fedpca

NAMES = [name for name in fedpca.__all__ if name != "__version__"]


def examples_of(name: str) -> doctest.DocTest:
    """The examples of a name's own docstring, as a user would type them: nothing is imported beforehand."""
    text = getattr(fedpca, name).__doc__ or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, None, 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])  # where `experiments/` is
    test = examples_of(name)
    assert test.examples, "no example"
    found = doctest.DocTestRunner(verbose=False).run(test, out=sys.stdout.write)
    assert found.failed == 0
