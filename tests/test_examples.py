"""The examples run as their texts say."""

import runpy
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedpca.flower.config import read_run_config

EXAMPLES = Path(__file__).parents[1] / "examples"
HOSPITALS = EXAMPLES / "flower-hospitals"


def test_the_method_of_the_example_trims_both_ends(monkeypatch):
    torch = pytest.importorskip("torch")
    trimmed = runpy.run_path(str(EXAMPLES / "trimmed_mean.py"))["Trimmed"](share=0.25)
    values = torch.tensor([[1.0, 100.0], [2.0, 3.0], [4.0, 5.0], [-50.0, 1.0]])
    assert trimmed(values).tolist() == [1.5, 4.0]


def test_folders_for_hospitals_are_made(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["make_folders.py", str(tmp_path), "--sites", "3"])
    runpy.run_path(str(HOSPITALS / "make_folders.py"), run_name="__main__")
    assert capsys.readouterr().out.count("images to train on") == 3
    assert {path.name for path in tmp_path.iterdir()} == {"berlin", "bonn", "dresden"}
    with np.load(tmp_path / "bonn" / "images.npz") as file:
        assert file["x_train"].shape[0] == file["y_train"].shape[0] > 400
        assert file["x_test"].shape[1:] == (1, 8, 8)


def test_the_run_config_of_the_hospitals_is_accepted():
    config = tomllib.loads((HOSPITALS / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    experiment, deployment = read_run_config(config)
    assert experiment.methods
    assert deployment.sites >= 2
