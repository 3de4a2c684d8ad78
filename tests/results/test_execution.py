"""Nothing that is read is executed: whatever a run folder names, its code stays untouched."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.results.made import a_line, append, write_run

TRAP = "from pathlib import Path\nPath(__file__).with_name('executed').touch()\nmine = None\n"
NAMES = {
    'methods = [\n    "fedavg",\n]': 'methods = [\n    "trap:mine",\n]',
    "[method.fedavg]": '[method."trap:mine"]\nq = 1',
    'accuracy = "acc"': 'accuracy = "trap:mine"',
    'corruption = "gaussian_noise"': 'corruption = "trap:mine"',
    'name = "cnn-small"': 'name = "trap:mine"',
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a module that would leave a file if it were imported, and a run that names it everywhere."""
    (tmp_path / "trap.py").write_text(TRAP)
    scores = {"trap:mine": 0.5, "acc": 0.5, "bacc": 0.5, "auc": 0.5, "auc_ovo": 0.5}
    line = a_line(1, groups=None) | {"groups": {"common": scores, "rare": scores}}
    run = write_run(tmp_path / "runs/a", [line], method="fedavg")
    text = (run / "settings.toml").read_text()
    for name, evil in NAMES.items():
        assert name in text
        text = text.replace(name, evil)
    (run / "settings.toml").write_text(text)
    return tmp_path


def fedpca(place: Path, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "fedpca", *words]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("installed", [False, True], ids=["package:name", "entry point"])
def test_results_execute_nothing_that_a_run_folder_names(place: Path, installed: bool):
    if installed:  # under the same names a package offers its code to runs, but not to those who read them
        (place / "trap-1.0.dist-info").mkdir()
        (place / "trap-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: trap\nVersion: 1.0\n")
        groups = ("methods", "metrics", "corruptions", "trackers")
        points = "".join(f"[fedpca.{group}]\ntrap = trap:mine\n" for group in groups)
        (place / "trap-1.0.dist-info/entry_points.txt").write_text(points)
        settings = place / "runs/a/settings.toml"
        settings.write_text(settings.read_text().replace('"trap:mine"', '"trap"'))
        rounds = place / "runs/a/rounds.jsonl"
        rounds.write_text(rounds.read_text().replace('"trap:mine"', '"trap"'))
    outputs = (
        "--html",
        "page.html",
        "--figures",
        "figures",
        "--csv",
        "t.csv",
        "--markdown",
        "t.md",
        "--latex",
        "t.tex",
    )
    shown = fedpca(place, "results", "runs", *outputs)
    assert "trap" in shown
    assert "Outside" in shown
    assert "trap" in (place / "page.html").read_text()
    fedpca(place, "results", "runs", "--json", "--paper-of", "cifar10")
    assert not (place / "executed").exists()


def test_nor_does_watch(place: Path):
    code = (
        "import sys; from pathlib import Path; from fedpca.results.page.feed import RunFeed\n"
        "from fedpca.results.page import write_page; write_page(RunFeed(Path('runs'), 60).state().runs, live=True)"
    )
    append(place / "runs/a", a_line(2, groups=None, tested=False))
    subprocess.run([sys.executable, "-c", code], cwd=place, check=True)
    assert not (place / "executed").exists()


COMMANDS = (
    ("results", "runs"),
    ("results", "runs", "--html", "page.html", "--figures", "figures"),
    ("claims", "runs"),
    ("list", "methods"),
    ("list", "metrics"),
    ("list", "corruptions"),
    ("list", "noise"),
    ("list", "models"),
    ("list", "figures"),
    ("list", "methods", "trap:mine"),
    ("audit", "--site", "runs/a"),
    ("audit", "review", "runs/a"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_that_read_find_no_code_in_the_folder_that_they_are_called_in(place: Path, words: tuple[str, ...]):
    """Not even what calls itself an installed package there, or has the name of a module that is looked for."""
    (place / "trap-1.0.dist-info").mkdir()
    (place / "trap-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: trap\nVersion: 1.0\n")
    groups = ("methods", "metrics", "corruptions", "noise_kinds", "figures", "trackers")
    points = "".join(f"[fedpca.{group}]\ntrap = trap:mine\n" for group in groups)
    (place / "trap-1.0.dist-info/entry_points.txt").write_text(points)
    done = subprocess.run(
        [sys.executable, "-m", "fedpca", *words], cwd=place, capture_output=True, text=True, check=False
    )
    assert not (place / "executed").exists(), done.stderr
    assert "Traceback" not in done.stderr


def test_commands_that_run_do_find_it(place: Path):
    words = ("run", "digits", "--method", "trap:mine", "--out", "new")
    done = subprocess.run(
        [sys.executable, "-m", "fedpca", *words], cwd=place, capture_output=True, text=True, check=False
    )
    assert (place / "executed").exists()
    assert done.returncode == 2
