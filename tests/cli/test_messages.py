"""What goes wrong is said, in one message, and shows in the exit code; nothing goes wrong in silence."""

import os
import re
from pathlib import Path

import pytest

from tests.cli.test_main import TINY, fedpca

HUNGRY = """
import torch
from torch import nn

class Hungry(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        if len(x) != 2:
            torch.empty(10**15)
        return self.head(x.flatten(1))

def build(shape, classes):
    return Hungry(classes)
"""
NOBODY = ("--set", "training.lr=1e30", "--set", "training.batch=8")  # every update is infinite


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_a_share_that_rounds_to_no_client_is_said_at_the_start(tiny: Path, tmp_path: Path):
    two = ("--set", "data.clients=2", "--set", "rare.share=0.2", "--set", "noise={clients=0.2,labels=0.5}")
    message = fedpca("run", tiny, "--seed", 0, *two, cwd=tmp_path).stderr
    rare, mislabeled = (line for line in message.splitlines() if line.startswith("warning: "))
    assert "rare.share = 0.2 of 2 clients rounds to none, so nobody is rare" in rare
    assert "noise.clients = 0.2 of 2 clients rounds to none, so nobody is mislabeled" in mislabeled
    assert message.index(mislabeled) < message.index("round 2/2")


def test_a_dry_run_says_it_too(tiny: Path, tmp_path: Path):
    shown = fedpca("run", tiny, "--set", "rare.share=0.1", "--dry-run", cwd=tmp_path).stdout
    assert "warning: rare.share = 0.1 of 4 clients rounds to none" in shown


def test_shares_that_give_somebody_are_not_warned_of(tiny: Path, tmp_path: Path):
    assert "warning" not in fedpca("run", tiny, "--seed", 0, cwd=tmp_path).stderr


def test_a_run_in_which_nobody_counts_fails(tiny: Path, tmp_path: Path):
    words = ("run", tiny, "--seed", 0, *NOBODY, "--set", "rare.share=0")
    for more in ([], ["--resume"]):
        done = fedpca(*words, *more, cwd=tmp_path, code=1)
        assert "Traceback" not in done.stderr
        last = done.stderr.splitlines()[-1]
        assert "fedpca: fedavg seed 0 trained nothing: all clients were left out in every round" in last
        assert "not finite" in last
        assert "training.lr" in last
        assert "fedavg" in done.stdout


def test_half_of_the_clients_asked_and_none_of_them_counting_fails_too(tiny: Path, tmp_path: Path):
    change = (*NOBODY, "--set", "participation=0.5")
    assert "trained nothing" in fedpca("run", tiny, "--seed", 0, *change, cwd=tmp_path, code=1).stderr


def one_line(message: str, *words: str) -> None:
    (line,) = message.splitlines()
    assert line.startswith("fedpca: ")
    for word in words:
        assert word in line


def test_an_out_that_cannot_be_made(tiny: Path, tmp_path: Path):
    (tmp_path / "there").write_text("a file")
    for out in ("there", "there/in/it"):
        one_line(fedpca("run", tiny, "--out", out, cwd=tmp_path, code=2).stderr, "there is a file", "--out")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/fedavg").write_text("a file")
    one_line(fedpca("run", tiny, "--out", "folder", cwd=tmp_path, code=2).stderr, "folder/fedavg is a file")
    one_line(
        fedpca("run", tiny, "--out", "x" * 5000, cwd=tmp_path, code=2).stderr, "File name too long", "choose another"
    )


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make one")
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_out_that_looks_as_if_it_could_be_made(tiny: Path, tmp_path: Path, jobs: int):
    message = fedpca("run", tiny, "--out", "/proc/mine", "--jobs", jobs, cwd=tmp_path, code=2).stderr
    assert message.splitlines()[-1].startswith("fedpca: the")
    assert "/proc" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_out_without_permission(tiny: Path, tmp_path: Path):
    (tmp_path / "closed").mkdir(mode=0o500)
    message = fedpca("run", tiny, "--out", "closed/mine", cwd=tmp_path, code=2).stderr
    one_line(message, "closed may not be written", "--out")


@pytest.mark.parametrize("jobs", [1, 2])
def test_memory_that_runs_out(tiny: Path, tmp_path: Path, jobs: int):
    (tmp_path / "hungry.py").write_text(HUNGRY)
    words = ("--set", "model.name=hungry:build", "--jobs", jobs)
    message = fedpca("run", tiny, *words, cwd=tmp_path, code=1).stderr
    assert "Traceback" not in message
    one_line(message.splitlines()[-1], "out of memory", "GiB", "training.batch", "--workers")


def test_a_model_with_another_signature(tiny: Path, tmp_path: Path):
    (tmp_path / "mine.py").write_text("def build(channels):\n    return None\n")
    message = fedpca("run", tiny, "--set", "model.name=mine:build", cwd=tmp_path, code=2).stderr
    one_line(message, "model 'mine:build'", "called as (shape, classes), but takes (channels)")


def test_a_settings_file_that_is_none(tmp_path: Path):
    (tmp_path / "mine.toml").write_bytes(b"\x89PNG\x00")
    one_line(fedpca("run", "mine.toml", cwd=tmp_path, code=2).stderr, "mine.toml is not valid TOML")
    (tmp_path / "mine.toml").write_text(f"rounds = {'9' * 5000}")
    one_line(fedpca("run", "mine.toml", cwd=tmp_path, code=2).stderr, "mine.toml: an integer is too long")
    (tmp_path / "folder").mkdir()
    one_line(fedpca("run", "folder", cwd=tmp_path, code=2).stderr, "folder is a folder", "folder/mine.toml")
    one_line(fedpca("run", "x" * 300, cwd=tmp_path, code=2).stderr, "there is no settings file", "there are ")
    one_line(fedpca("run", "x" * 300 + ".toml", cwd=tmp_path, code=2).stderr, "File name too long")


def test_an_option_is_named_where_its_value_is_wrong(tiny: Path, tmp_path: Path):
    message = fedpca("run", tiny, "--set", "rounds=0", cwd=tmp_path, code=2).stderr
    one_line(message, "--set rounds=0 on top of", "tiny.toml", "greater than or equal to 1")
    one_line(fedpca("run", tiny, "--method", "xyz", cwd=tmp_path, code=2).stderr, "--method xyz on", "there are fedavg")
    assert "did you mean" not in fedpca("run", tiny, "--method", "ditto", cwd=tmp_path, code=2).stderr
    assert "No such option" in fedpca("run", tiny, "--outt", "x", cwd=tmp_path, code=2).stderr


@pytest.mark.parametrize(
    "words", [[], ["run"], ["results"], ["claims"], ["list"], ["watch"], ["demo"], ["data"], ["deploy"]]
)
def test_help_has_no_stray_backslashes(words: list[str]):
    assert not re.search(r"\\", fedpca(*words, "--help").stdout)
