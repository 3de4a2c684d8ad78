"""Simulated runs with differential privacy: the same bits however they are played, and a record of what they spend."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fedpca.cli.main import app
from fedpca.core import Params, Server
from fedpca.errors import RunError, SettingsError
from fedpca.runs.cell import Cell, cells, check_folder
from fedpca.runs.check import check_experiment, method_of
from fedpca.runs.jobs import every_run
from fedpca.runs.private import privacy_of
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.experiment import Experiment
from tests.runs.test_run import rounds, same_run, silent

PRIVACY = {"reports": {"epsilon": 50.0}, "central": {"epsilon": 200.0, "clip": 0.5}}


def private(small: Experiment, **more: object) -> Experiment:
    table = small.model_dump(mode="json", exclude_none=True)
    own = {"methods": ["fedpca-hs"], "method": {"fedpca-hs": {"warmup": 1}}, "rounds": 4, "privacy": PRIVACY}
    return check_experiment({**table, **own, **more}, "private")


def play(experiment: Experiment, out: Path, workers: int = 1, until: int | None = None) -> Cell:
    (cell,) = cells(experiment, out)

    def watch(cell: Cell, line: dict) -> None:
        if line["round"] == until:
            raise KeyboardInterrupt

    run_cell(cell, *prepare(experiment), workers, watch if until else silent)
    return cell


def test_the_same_bits_for_any_workers_and_any_interruption(small: Experiment, tmp_path: Path):
    experiment = private(small)
    cell = play(experiment, tmp_path / "one")
    assert same_run(cell.folder, play(experiment, tmp_path / "two", workers=2).folder)
    with pytest.raises(KeyboardInterrupt):
        play(experiment, tmp_path / "three", until=2)
    assert same_run(cell.folder, play(experiment, tmp_path / "three").folder)


def test_the_record_says_what_is_spent(small: Experiment, tmp_path: Path):
    cell = play(private(small), tmp_path)
    facts = json.loads((cell.folder / "about.json").read_text())["privacy"]
    assert {name: (own["epsilon"], own["releases"]) for name, own in facts.items()} == {
        "reports": (50.0, 3 * 3),
        "central": (200.0, 4),
    }
    spent = [line["privacy"] for line in rounds(cell.folder)]
    assert spent[0]["reports"] == 0
    assert spent[-1]["central"] == pytest.approx(200.0, abs=2e-3)
    assert spent[-1]["reports"] < spent[-1]["central"] < spent[-1]["together"]


def test_noise_is_there_and_attackers_add_none_to_their_lies(small: Experiment, tmp_path: Path):
    reports = {"privacy": {"reports": {"epsilon": 0.1}}}
    liar = {"attack": {"kind": "none", "says": {"loss": 77.0}, "clients": ["3"]}}
    plain = rounds(play(private(small, privacy={}), tmp_path / "plain").folder)
    noisy = rounds(play(private(small, **reports, **liar), tmp_path / "noisy").folder)
    honest, blurred = plain[-1]["clients"]["loss"], noisy[-1]["clients"]["loss"]
    assert blurred[3] == 77.0
    assert all(abs(one - other) > 1e-3 for one, other in zip(honest, blurred, strict=True))
    assert "privacy" not in plain[-1]


def test_other_rounds_would_need_other_noise(small: Experiment, tmp_path: Path):
    cell = play(private(small), tmp_path)
    more = replace(cell, settings=cell.settings.model_copy(update={"rounds": 6}))
    with pytest.raises(RunError, match=r"privacy\.\*\.epsilon, whose noise is for the rounds that were planned"):
        check_folder(more, resume=True)


def test_a_model_that_sends_more_than_weights_is_refused(small: Experiment):
    privacy = privacy_of(private(small).privacy, method_of(private(small)), 4)
    server = Server(Params(torch.zeros(2), torch.zeros(3), torch.zeros(1, dtype=torch.int64)))
    with pytest.raises(SettingsError, match=r"the model resnet8 has 3 numbers of batch norm .* such as resnet8-gn"):
        privacy.require_weights_alone(server, "resnet8")


def test_what_cannot_be_promised_for_one_method_is_refused_before_any_is_played(small: Experiment, tmp_path: Path):
    experiment = private(small, methods=["fedavg", "median"], method={})
    with pytest.raises(SettingsError, match="median has PerCoordinate"):
        every_run({"": experiment}, tmp_path, resume=False)
    assert len(every_run({"": private(small)}, tmp_path, resume=False)) == 1


def test_a_dry_run_says_what_is_promised_and_refuses_what_cannot_be(tmp_path: Path):
    given = ["run", "digits", "--dry-run", "--set", "privacy.reports.epsilon=8", "--set", "rounds=12"]
    given += ["--method", "fedpca-d", "--set", "model.name=mlp"]
    central = ["--set", "privacy.central.epsilon=8", "--set", "privacy.central.clip=1"]
    said = CliRunner().invoke(app, [*given, *central]).output
    assert "privacy      fedpca-d, reports: epsilon 8, delta 1e-05; " in said
    assert "privacy      fedpca-d, weights: epsilon 8, delta 1e-05; 12 rounds of a client" in said
    assert "privacy      fedpca-d, together: epsilon 12" in said
    refused = CliRunner().invoke(app, ["run", "digits", "--dry-run", "--method", "median", *central])
    assert "median has PerCoordinate" in str(refused.exception or refused.output)
