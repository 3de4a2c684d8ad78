"""Features that a run saves on request: the same ones however it was played, and nothing of it by default."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.numpy import load_file

from fedpca.errors import SettingsError
from fedpca.models.build import build
from fedpca.runs.cell import Cell, cells, check_folder
from fedpca.runs.check import check_experiment
from fedpca.runs.folder import FEATURES
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.experiment import Experiment


def silent(cell: Cell, line: dict) -> None:
    pass


def run(experiment: Experiment, out: Path, workers: int = 1, watch=silent) -> Cell:
    dataset, federation = prepare(experiment)
    (cell,) = cells(experiment, out)
    run_cell(cell, dataset, federation, workers, watch)
    return cell


@pytest.fixture
def saving(small: Experiment) -> Experiment:
    return small.model_copy(update={"evaluation": small.evaluation.model_copy(update={"features": 15})})


def test_saved_features_are_those_of_the_final_model(saving: Experiment, federation, tmp_path):
    cell = run(saving, tmp_path)
    saved = load_file(cell.folder / FEATURES)
    assert saved["features"].shape == (6 * 15, 64)
    assert [saved[name].shape for name in ("label", "predicted", "client")] == [(90,)] * 3
    assert saved["client"].tolist() == sorted(list(range(6)) * 15)
    net = build("mlp", federation.shape, 10, 0, cell.folder / "final.safetensors")
    with torch.no_grad():
        logits = net.head(torch.from_numpy(saved["features"]))
    assert (logits.argmax(dim=1).numpy() == saved["predicted"]).all()
    for number, shard in enumerate(federation.shards.values()):
        with torch.no_grad():
            features, _ = net.features(shard.x[torch.arange(len(shard.y))])
        mine = saved["client"] == number
        rows = np.abs(features.numpy()[None] - saved["features"][mine][:, None]).max(axis=2).argmin(axis=1)
        assert len(set(rows)) == 15
        assert rows.tolist() == sorted(rows)
        assert (shard.y[rows].numpy() == saved["label"][mine]).all(), "the labels that the owner gave"


def test_clients_with_fewer_images_give_all(small: Experiment, tmp_path):
    settings = small.model_copy(update={"evaluation": small.evaluation.model_copy(update={"features": 1000})})
    saved = load_file(run(settings, tmp_path).folder / FEATURES)
    assert np.bincount(saved["client"]).tolist() == [40] * 6


def test_workers_and_interruptions_do_not_change_a_byte(saving: Experiment, tmp_path):
    def stop(cell: Cell, line: dict) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    whole = run(saving, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(saving, tmp_path / "cut", watch=stop)
    (cut,) = cells(saving, tmp_path / "cut")
    assert not (cut.folder / FEATURES).exists()
    run(saving, tmp_path / "cut", workers=2)
    assert (cut.folder / FEATURES).read_bytes() == (whole.folder / FEATURES).read_bytes()


def test_by_default_nothing_is_saved(small: Experiment, tmp_path):
    assert not (run(small, tmp_path).folder / FEATURES).exists()


def test_settings_without_the_key_mean_what_they_meant(small: Experiment, tmp_path):
    cell = run(small, tmp_path)
    path = cell.folder / "settings.toml"
    table = tomllib.loads(path.read_text())
    assert table["evaluation"].pop("features") == 0
    path.write_text(tomli_w.dumps(table))  # as written before there was the key
    check_folder(cell, resume=True)


def test_the_number_of_images_cannot_be_negative():
    with pytest.raises(SettingsError, match=r"evaluation\.features: input should be greater than or equal to 0"):
        check_experiment({"evaluation": {"features": -1}}, "x")
