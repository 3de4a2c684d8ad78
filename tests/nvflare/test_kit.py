"""What `fedpca deploy kit` writes into a startup kit, what a site reads there, and what the doctor says about it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

from fedpca.errors import SettingsError, UserError
from fedpca.nvflare.config import read_run, read_site
from fedpca.nvflare.kit import ALLOW_LIST, CLASSES, prepare_kit
from fedpca.operate.check_kit import is_allowed
from fedpca.operate.doctor import Machine, examine
from tests.nvflare.federation import JOB


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """As `nvflare provision` makes them, without what is signed."""
    folder = tmp_path / "bonn"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    client = {"client": {"fqsn": "bonn"}, "servers": [{"service": {"target": "localhost:1"}}]}
    (folder / "startup" / "fed_client.json").write_text(json.dumps(client))
    resources = {"format_version": 2, ALLOW_LIST: ["nvflare.app_common.np.np_trainer.NPTrainer"]}
    (folder / "local" / "resources.json.default").write_text(json.dumps(resources))
    (tmp_path / "data").mkdir()
    x, y = np.random.default_rng(0).integers(0, 255, (20, 1, 8, 8), dtype=np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "data" / "images.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    return folder


def resources_of(kit: Path) -> dict:
    return json.loads((kit / "local" / "resources.json").read_text())


def test_a_kit_allows_fedpcas_classes_besides_those_that_it_had_and_streams_no_logs(kit: Path, tmp_path: Path):
    written = prepare_kit(kit, tmp_path / "data", {"device": "cpu"})
    assert [path.name for path in written] == ["resources.json", "fedpca.toml"]
    resources = resources_of(kit)
    assert resources[ALLOW_LIST] == ["nvflare.app_common.np.np_trainer.NPTrainer", *CLASSES]
    assert resources["allow_log_streaming"] is False
    prepare_kit(kit, None, {})
    assert resources_of(kit) == resources, "twice is once"
    settings = read_site("bonn", kit / "local", kit)
    assert (settings.site, settings.data, settings.folder) == ("bonn", tmp_path / "data", kit / "fedpca-store")


def test_the_job_names_no_other_classes_and_brings_no_code():
    named = set()
    for path in JOB.rglob("config_fed_*.json"):
        named |= {part.split('"')[1] for part in path.read_text().split('"path":')[1:]}
    assert named == set(CLASSES)
    assert not list(JOB.rglob("custom"))
    assert not list(JOB.rglob("*.py"))


@pytest.mark.parametrize(
    "prefixes", [[CLASSES[0]], ["nvflare.collab."], ["nvflare.collab.runtime"], ["nvflare.coll"], ["fedpca."], []]
)
def test_what_is_allowed_is_what_nvflare_allows(prefixes: list[str]):
    theirs = [prefix for prefix in prefixes if ComponentPathAuthorizer._path_matches_prefix(CLASSES[0], prefix)]
    assert is_allowed(CLASSES[0], prefixes) == bool(theirs)


def test_a_star_allows_everything():
    assert is_allowed(CLASSES[0], ["*"])


def test_a_site_has_the_name_of_its_certificate(kit: Path):
    (kit / "local" / "fedpca.toml").write_text('site = "rome"\ndata = "data"\n')
    with pytest.raises(SettingsError, match="NVFlare's name of this site is 'bonn', got 'rome'"):
        read_site("bonn", kit / "local", kit)


def test_paths_begin_at_the_kit_and_may_have_the_sites_name(kit: Path):
    (kit / "local" / "fedpca.toml").write_text('data = "data/{site}"\npolicy = "local/site-policy.toml"\n')
    settings = read_site("bonn", kit / "local", kit)
    assert (settings.data, settings.policy) == (kit / "data" / "bonn", kit / "local" / "site-policy.toml")


def test_a_typo_is_named_and_nothing_is_written(kit: Path, tmp_path: Path):
    with pytest.raises(SettingsError, match="devise"):
        prepare_kit(kit, tmp_path / "data", {"devise": "cpu"})
    assert not (kit / "local" / "fedpca.toml").exists()


def test_what_is_no_kit_is_said(tmp_path: Path):
    with pytest.raises(UserError, match="is no startup kit"):
        prepare_kit(tmp_path, None, {})


def test_the_examples_job_is_a_run(tmp_path: Path):
    experiment, deployment = read_run(JOB / "app" / "config", tmp_path)
    assert experiment.methods == ("fedpca",)
    assert deployment.out == tmp_path / "runs"


def test_the_doctor_finds_what_nvflare_would_refuse(kit: Path):
    found = [finding.line() for finding in examine(Machine(engine="nvflare", kit=kit))]
    assert any("does not allow nvflare.collab.runtime.controller.CollabController" in line for line in found)
    assert any("is no certificate" in line for line in found)


def test_the_doctor_looks_at_the_data_that_the_kit_names(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDPCA_CACHE", str(tmp_path / "cache"))
    prepare_kit(kit, tmp_path / "data", {})
    found = [finding.line() for finding in examine(Machine(engine="nvflare", kit=kit))]
    assert any("allows the classes of fedpca's job" in line for line in found)
    assert any("20 images to train on" in line for line in found)
    assert any("nvflare 2.9.0" in line for line in found)
    assert not any("flwr" in line for line in found)


def test_an_engine_that_nobody_knows_is_named():
    with pytest.raises(UserError, match=r"there is no engine 'nvflar' \(did you mean 'nvflare'"):
        list(examine(Machine(engine="nvflar")))
