"""One thing in one place: another package adds a method, a metric, a corruption and a figure, each in one file.

The package is a folder on the path with these files and the entry points that an installation would write.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

METHOD = '''
"""The model of one client, whatever the others learned."""

from dataclasses import dataclass, replace

from fedpca import Method, PerCoordinate, Plan, Settings, base, method, one_stage


class LastSettings(Settings):
    """What `[method.last]` takes."""

    rank: int = 1  # from the end


@dataclass(frozen=True)
class Last:
    rank: int

    def __call__(self, values):
        return values[-self.rank].double()


@method("last", settings=LastSettings)
def last(plan: Plan, settings: LastSettings) -> Method:
    """The last client's weights."""
    return one_stage(replace(base(plan), aggregate=PerCoordinate(Last(settings.rank))))
'''
METRIC = '''
"""The mean probability of the label."""

from fedpca import Metric


def credence(seen):
    return float(seen.probs[range(len(seen.labels)), seen.labels].mean())


METRIC = Metric("credence", "credence", "mean probability of the label", credence)
'''
CORRUPTION = '''
"""Images upside down."""

from fedpca import Corruption

CORRUPTION = Corruption("upside_down", "turned upside down", lambda x, rng, _: x[:, :, ::-1], {"imagenet": (1.0,)})
'''
FIGURE = '''
"""How many rounds each run has played."""

from matplotlib.figure import Figure

from fedpca.results.figures import FigureKind


def draw(runs):
    figure = Figure()
    figure.subplots().bar([run.method for run in runs], [len(run.rounds) for run in runs])
    return figure


FIGURE = FigureKind("played", draw, "no round was played")
'''


class Added(NamedTuple):
    """One thing that the other package adds."""

    group: str  # of its entry point
    name: str
    module: str
    source: str
    attribute: str  # that holds it in the module


FILES = {
    "method": Added("fedpca.methods", "last", "added_method", METHOD, "last"),
    "metric": Added("fedpca.metrics", "credence", "added_metric", METRIC, "METRIC"),
    "corruption": Added("fedpca.corruptions", "upside_down", "added_corruption", CORRUPTION, "CORRUPTION"),
    "figure": Added("fedpca.figures", "played", "added_figure", FIGURE, "FIGURE"),
}
SETTINGS = """
rounds = 2
seeds = [0]
methods = ["fedavg", "last"]
[data]
clients = 4
train_images = 120
test_images = 60
[model]
name = "mlp"
[rare]
share = 0.25
corruption = "upside_down"
severity = 1
[evaluation]
accuracy = "credence"
[method.last]
rank = 2
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with another package's four files, as if it were installed."""
    folder = tmp_path_factory.mktemp("site")
    written = folder / "added-1.0.dist-info"
    written.mkdir()
    (written / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    lines = []
    for added in FILES.values():
        (folder / f"{added.module}.py").write_text(added.source)
        lines += [f"[{added.group}]", f"{added.name} = {added.module}:{added.attribute}"]
    (written / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def fedpca(place: Path, *words: object) -> str:
    path = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "fedpca", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, check=False, env=env)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def runs(place: Path) -> Iterator[Path]:
    """A run with the method, the corruption and the metric, of which tables tell."""
    (place / "own.toml").write_text(SETTINGS)
    (place / "shown.txt").write_text(fedpca(place, "run", "own.toml"))
    return place / "runs" / "own"


@pytest.mark.parametrize("kind", FILES)
def test_it_is_listed(kind: str, place: Path):
    shown = fedpca(place, "list", f"{kind}s").splitlines()
    assert any(line.split()[0] == FILES[kind].name for line in shown)


def test_the_run_used_them(place: Path, runs: Path):
    line = json.loads((runs / "last/seed-0/rounds.jsonl").read_text().splitlines()[-1])
    assert set(line["groups"]) == {"common", "rare"}
    assert 0 < line["groups"]["rare"]["credence"] < 1
    assert 'corruption = "upside_down"' in (runs / "last/seed-0/settings.toml").read_text()


def test_tables_show_them(place: Path, runs: Path):
    shown = (place / "shown.txt").read_text()
    assert "last (rank=2)" in shown
    assert "worst credence" in shown
    fedpca(place, "results", runs, "--csv", "t.csv", "--markdown", "t.md")
    rows = list(csv.DictReader((place / "t.csv").open()))
    assert any("credence" in column for column in rows[0])
    assert any("last" in row["method"] for row in rows)
    assert "worst credence" in (place / "t.md").read_text()


def test_the_page_shows_them(place: Path, runs: Path):
    fedpca(place, "results", runs, "--html", "page.html")
    page = (place / "page.html").read_text()
    assert "last (rank=2)" in page
    assert "worst credence" in page


def test_the_figure_is_drawn_with_the_others(place: Path, runs: Path):
    fedpca(place, "results", runs, "--figures", "figures")
    assert {"played.png", "played.pdf", "accuracy.png"} <= {path.name for path in (place / "figures").iterdir()}
