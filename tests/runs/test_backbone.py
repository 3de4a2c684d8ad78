from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.errors import DataError, SettingsError
from fedpca.models.build import build
from fedpca.models.pretrained import imagenet
from fedpca.runs.backbone import SCALE, fingerprint, look_through, open_entry, with_features
from fedpca.runs.cell import cells
from fedpca.runs.check import check_experiment
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.experiment import ModelSettings

MODEL = ModelSettings(name="linear", backbone="efficientnet-lite0", backbone_size=64)
TABLE = {
    "rounds": 3,
    "seeds": [0],
    "data": {"clients": 4, "train_images": 100, "test_images": 50},
    "rare": {"share": 0.25, "sigma": 0.5},
    "noise": {"clients": 0.25, "labels": 1.0},
    "training": {"batch": 16, "epochs": 10, "lr": 0.003},
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def federation() -> Federation:
    experiment = check_experiment(TABLE, "table")
    return federate(experiment, load(experiment.data))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def seen(federation: Federation, cache: Path) -> Federation:
    return with_features(federation, MODEL, cache_dir=cache)


def test_noise_that_looks_at_images_sees_what_clients_see(federation: Federation, seen: Federation, cache: Path):
    look = look_through(MODEL, cache_dir=cache)
    images, features = (part.shards["0"].x[torch.arange(25)].numpy() for part in (federation, seen))
    assert look is not None
    assert np.array_equal(look(images), features)
    assert look_through(ModelSettings()) is None


def test_an_experiment_with_a_backbone_draws_wrong_labels_from_its_features(
    cache: Path, monkeypatch: pytest.MonkeyPatch
):
    shapes = []
    monkeypatch.setenv("FEDPCA_CACHE", str(cache))
    monkeypatch.setattr("fedpca.data.doubts._standardised", lambda inputs: shapes.append(inputs.shape) or inputs)
    table = {**TABLE, "noise": {**TABLE["noise"], "kind": "instance"}, "model": MODEL.model_dump(exclude_none=True)}
    prepare(check_experiment(table, "table"))
    assert shapes == [(100, 1280)]


def test_clients_and_tests_have_the_networks_features_in_place_of_images(federation: Federation, seen: Federation):
    net = build("efficientnet-lite0", (3, 64, 64), 1000, 0, imagenet("efficientnet-lite0"))
    for before, after in ((federation.shards["3"], seen.shards["3"]), (federation.tests["rare"], seen.tests["rare"])):
        rows = torch.tensor([3, 20])
        grey = (before.x[rows].float() - 127) / 128
        square = interpolate(grey.expand(-1, 3, -1, -1), (64, 64), mode="bilinear")
        with torch.no_grad():
            expected = net.features(square)[0] * SCALE
        torch.testing.assert_close(after.x[rows].flatten(1), expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(before.y, after.y)
    assert seen.shape == seen.shards["0"].x[torch.arange(1)].shape[1:] == (1280, 1, 1)
    assert list(seen.shards) == list(federation.shards)
    assert list(seen.tests) == list(federation.tests)
    assert seen.truth is federation.truth


def test_without_a_backbone_the_images_stay(federation: Federation):
    assert with_features(federation, ModelSettings()) is federation


def test_features_are_kept_and_a_damaged_entry_is_made_anew(
    federation: Federation, seen: Federation, cache: Path, tmp_path: Path
):
    copy = shutil.copytree(cache, tmp_path / "copy")
    entry = copy / "features-1-efficientnet-lite0-64" / fingerprint(federation.shards["0"].x)
    rows, told = torch.arange(25), list[tuple[int, ...]]()
    np.save(entry / "features.npy", np.full((25, 1280, 1, 1), 7, np.float32))
    kept = with_features(federation, MODEL, cache_dir=copy)
    assert (kept.shards["0"].x[rows] == 7).all()
    del kept
    (entry / "features.npy").write_bytes((entry / "features.npy").read_bytes()[:1000])
    assert open_entry(entry) is None
    again = with_features(federation, MODEL, progress=lambda *of: told.append(of), cache_dir=copy)
    assert torch.equal(again.shards["0"].x[rows], seen.shards["0"].x[rows])
    assert told[-1] == (25, 25), "the other clients' were there"


def test_the_number_of_cores_changes_no_bit(
    federation: Federation, seen: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    other = with_features(federation, MODEL, cache_dir=tmp_path / "other")
    rows = torch.arange(25)
    assert all(torch.equal(seen.shards[client].x[rows], other.shards[client].x[rows]) for client in seen.shards)


def test_a_fingerprint_knows_every_pixel_and_the_order():
    images = torch.randint(0, 256, (300, 1, 8, 8), dtype=torch.uint8)
    other = images.clone()
    other[299, 0, 7, 7] ^= 1
    assert fingerprint(images) == fingerprint(images.clone())
    assert len({fingerprint(x) for x in (images, other, images.flip(0), images.view(300, 1, 4, 16))}) == 4


def test_a_cache_that_cannot_be_written_is_named(federation: Federation, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"features cannot be written to .*file.*FEDPCA_CACHE"):
        with_features(federation, MODEL, cache_dir=tmp_path / "file")


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_an_experiment_runs_on_features(
    seen: Federation, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setenv("FEDPCA_CACHE", str(cache))
    model = {"name": name, "backbone": "efficientnet-lite0", "backbone_size": 64}
    wanted = {"methods": ["fedpca-d-auto"], "method": {"fedpca-d-auto": {"warmup": 1}}, "model": model}
    experiment = check_experiment({**TABLE, **wanted}, "table")
    (cell,) = cells(experiment, tmp_path / "runs")
    run_cell(cell, *prepare(experiment), 1, lambda *_: None)
    assert json.loads((cell.folder / "about.json").read_text())["shape"] == [1280, 1, 1]
    last = json.loads((cell.folder / "rounds.jsonl").read_text().splitlines()[-1])
    assert last["groups"]["common"]["acc"] > 0.3, "chance is 0.1"
    assert all(isinstance(spread, float) for spread in last["clients"]["dispersion"])


def test_settings_that_do_not_fit_are_refused():
    table = {"model": {"name": "linear", "backbone": "efficientnet-lite0"}, "training": {"augment": "crop-flip"}}
    with pytest.raises(
        SettingsError, match=r"training\.augment = 'crop-flip', but with model\.backbone clients have no"
    ):
        check_experiment(table, "file")
