"""`fedpca run --dry-run` says what a run does, and leaves no run folder."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from fedpca.cli.dry_run import duration
from fedpca.cli.main import app
from fedpca.data.datasets import digits

SETTINGS = """
rounds = 4
methods = ["fedavg", "median"]
seeds = [0, 1, 2]
[data]
clients = 6
train_images = 240
test_images = 100
[rare]
share = 0.17
[noise]
clients = 0.17
labels = 0.8
[model]
name = "mlp"
"""


def said(tmp_path, text: str = SETTINGS, *options: str) -> str:
    (tmp_path / "own.toml").write_text(text)
    result = CliRunner().invoke(
        app, ["run", str(tmp_path / "own.toml"), "--out", str(tmp_path / "runs"), "--dry-run", *options]
    )
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "runs").exists()
    return result.output


def line(text: str, word: str) -> str:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(word))


def test_it_says_what_would_happen(tmp_path):
    text = said(tmp_path)
    assert "240 images of 1x8x8 to train on" in line(text, "data")
    assert line(text, "classes").split()[1] == "10:"
    assert line(text, "clients").endswith("6: 0, 1, 2, 3, 4, 5; images each: 40")
    assert "1: 5; gaussian_noise" in line(text, "rare")
    assert "80 % of their labels are made wrong" in line(text, "mislabeled")
    assert line(text, "test images").endswith("common 100, rare 100")
    assert "mlp, 4,810 weights" in line(text, "model")
    assert "6: 2 methods x 3 seeds, 4 rounds each" in line(text, "runs")
    assert re.search(r"about \d+(\.\d)? m?s with \d+ workers?", line(text, "a round"))
    assert f"6 runs would be written to {tmp_path / 'runs'}" in text


def test_rates_of_each_and_of_the_others_are_said(tmp_path):
    text = said(tmp_path, SETTINGS.replace("clients = 0.17\nlabels = 0.8", "clients = 0.34\nlabels = [0.2, 0.6]"))
    assert line(text, "mislabeled").endswith("; 20 % to 60 % of their labels are made wrong")
    text = said(tmp_path, SETTINGS.replace("labels = 0.8", "labels = 0.8\nothers_labels = 0.1"))
    assert line(text, "others").endswith("10 % of their labels are made wrong")
    text = said(tmp_path, SETTINGS.replace("clients = 0.17\nlabels = 0.8", "others_labels = 0.1"))
    assert line(text, "others").endswith("10 % of their labels are made wrong")
    assert "the data as they are" not in text


def test_the_share_of_wrong_labels_is_said_where_a_file_has_them(tmp_path):
    labels = digits().train.labels
    one_in_four = np.where(np.arange(len(labels)) % 4 == 0, (labels + 1) % 10, labels)
    np.savez(tmp_path / "people.npz", label=labels, worst=one_in_four, best=labels)
    noise = 'clients = 0.17\nkind = "given"\nfile = "people.npz"\ncolumn = "worst"\nothers = "best"'
    text = said(tmp_path, SETTINGS.replace("clients = 0.17\nlabels = 0.8", noise))
    assert re.search(r"; labels of column worst; wrong are [1-4]\d %$", line(text, "mislabeled"))
    assert line(text, "others").endswith("labels of column best; wrong are 0 %")


def test_every_setting_is_described(tmp_path):
    text = said(tmp_path, SETTINGS + '[setting.a.noise]\nlabels = 0.4\n[setting.b.model]\nname = "cnn-small"\n')
    assert "setting 'a'" in text
    assert "40 % of their labels" in text
    assert "setting 'b'" in text
    assert "12 runs would be written" in text


def test_data_as_they_are(tmp_path):
    text = said(tmp_path, 'rounds = 1\n[data]\nclients = 2\ntrain_images = 100\n[model]\nname = "mlp"\n')
    assert "nobody is made rare or mislabeled" in line(text, "scenario")
    assert "rare  " not in text


def test_what_would_be_refused_is_refused(tmp_path):
    (tmp_path / "runs" / "fedavg" / "seed-0").mkdir(parents=True)
    (tmp_path / "runs" / "fedavg" / "seed-0" / "settings.toml").write_text("")
    (tmp_path / "own.toml").write_text(SETTINGS)
    command = ["run", str(tmp_path / "own.toml"), "--out", str(tmp_path / "runs"), "--dry-run"]
    assert "holds a run already" in str(CliRunner().invoke(app, command).exception)


@pytest.mark.parametrize(("seconds", "text"), [(0.012, "12 ms"), (2.5, "2.5 s"), (75, "75 s"), (600, "10 min")])
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_what_is_loaded_once_does_not_count_as_time_of_a_round(monkeypatch):
    """The first pass of a process takes seconds; a round of 20 small clients does not take minutes."""
    import time

    from fedpca.data.datasets import load
    from fedpca.data.federation import federate
    from fedpca.runs import trial
    from fedpca.settings.experiment import Experiment

    calls, play = [], trial.play

    def slow_at_first(*given):
        calls.append(given)
        time.sleep(1.5 if len(calls) == 1 else 0)
        return play(*given)

    monkeypatch.setattr(trial, "play", slow_at_first)
    experiment = Experiment.model_validate({"data": {"clients": 20}, "model": {"name": "mlp"}})
    assert trial.try_out(experiment, federate(experiment, load(experiment.data)), 1).seconds < 5
