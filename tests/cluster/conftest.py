"""One cluster for all tests of this folder, which kill its workers and start new ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Dask, dask
from tests.runs.test_jobs import MODEL, SETTINGS, run


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment, a model of the user's own that may wait, and what one process makes of them."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "mine.py").write_text(MODEL)
    (folder / "own.toml").write_text(SETTINGS.replace('"mlp"', '"mine:build"'))
    run(folder, "own.toml", "--out", "whole")
    return folder


@pytest.fixture(scope="package")
def cluster(place: Path) -> Iterator[Dask]:
    with dask(place) as made:
        yield made
