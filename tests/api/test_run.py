"""`fedpca.run`: the runs of the command line, as values."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedpca
from fedpca.errors import RunError, SettingsError
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import write_table


def test_the_same_files_as_the_command_writes(small: Experiment, tmp_path: Path):
    (tmp_path / "small.toml").write_text(write_table(small))
    command = [sys.executable, "-m", "fedpca", "run", "small.toml", "--out", "cli", "--seed", "0"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    results = fedpca.run(tmp_path / "small.toml", seeds=[0], out=tmp_path / "python", progress=False)
    assert results.runs
    for run in results.runs:
        other = tmp_path / "cli" / run.folder.relative_to(tmp_path / "python")
        for name in ("settings.toml", "final.safetensors"):
            assert (run.folder / name).read_bytes() == (other / name).read_bytes()


def test_an_experiment_changed_shown_and_continued(small: Experiment, tmp_path: Path):
    call = {"methods": ["fedavg", "median"], "seeds": [3], "changes": ["rounds=2"], "out": tmp_path, "progress": False}
    results = fedpca.run(small, **call)
    assert [(run.method, run.seed, len(run.rounds)) for run in results.runs] == [("fedavg", 3, 2), ("median", 3, 2)]
    assert results.table.num_rows == 2
    assert "median" in results._repr_html_()
    assert "median" in results.page(tmp_path / "page.html").read_text()
    with pytest.raises(RunError, match="holds a run already"):
        fedpca.run(small, **call)
    assert len(fedpca.run(small, **call, resume=True).runs) == 2
    longer = fedpca.run(small, **{**call, "changes": ["rounds=4"]}, resume=True)
    assert [len(run.rounds) for run in longer.runs] == [4, 4]


def test_what_is_not_known_is_named():
    with pytest.raises(SettingsError, match="no experiment 'digitz'"):
        fedpca.run("digitz")
    with pytest.raises(SettingsError, match="there is no method 'fedavgg'"):
        fedpca.run(Experiment(), methods=["fedavgg"])
