"""A run config and a node config become settings, or an error that names the key."""

from pathlib import Path

import pytest

from fedpca.errors import SettingsError
from fedpca.flower.config import read_node_config, read_run_config
from fedpca.sites.settings import Deployment, ReportPrivacy

RUN = {"methods": "fedpca-hs", "seeds": 3, "rounds": 20, "deploy.sites": 4}


def test_dotted_keys_are_an_experiment_of_one_run():
    config = {**RUN, "name": "hospitals", "training.lr": 0.1, "method.fedpca-hs.warmup": 2, "deploy.privacy.noise": 0.5}
    experiment, deployment = read_run_config({**config, "deploy.classes": "cat, dog", "deploy.exchange": "one"})
    assert (experiment.methods, experiment.seeds, experiment.rounds) == (("fedpca-hs",), (3,), 20)
    assert experiment.training.lr == 0.1
    assert experiment.method["fedpca-hs"]["warmup"] == 2
    assert experiment.method["fedpca-hs"]["identify"]["smoothing"] == 0.5, "spelled out, as run folders have it"
    assert (experiment.data.clients, experiment.data.dataset) == (4, "hospitals")
    assert (deployment.sites, deployment.min_answers, deployment.exchange) == (4, 3, "one")
    assert (deployment.classes, deployment.privacy) == (("cat", "dog"), ReportPrivacy(noise=0.5))


def test_a_file_on_the_server_may_be_changed_by_the_config(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('rounds = 30\nmethods = ["fedavg"]\nseeds = [1]\n[training]\nlr = 0.5\nbatch = 8\n')
    experiment, _ = read_run_config({"experiment": str(path), "training.lr": 0.25, "deploy.sites": 2})
    assert (experiment.rounds, experiment.training.lr, experiment.training.batch) == (30, 0.25, 8)
    assert experiment.data.dataset == "mine"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"deploy.quorom": 2}, r"unknown key 'deploy.quorom' \(did you mean 'quorum'\?\)"),
        ({"deploy.veil.clip": 2.0}, "unknown key 'deploy.veil': it is now called deploy.privacy"),
        ({"deploy.quorum": 5}, "quorum = 5, but sites = 4"),
        ({"deploy.deadline": 0.0}, "deploy.deadline: .*greater than 0 .got: 0.0"),
        ({"training.lr": "fast"}, "training.lr: .*number"),
        ({"rare.share": 0.5}, "rare and noise make up sites for a simulation"),
        ({"noise.clients": 0.5, "noise.labels": 0.5}, "rare and noise make up sites for a simulation"),
        ({"methods": "fedpcaa"}, "there is no method 'fedpcaa'"),
        ({"experiment": "nowhere.toml"}, "there is no settings file nowhere.toml"),
        ({"training": 3, "training.lr": 0.1}, "'training' is given as a value too"),
    ],
)
def test_wrong_keys_are_named(change: dict[str, object], said: str):
    with pytest.raises(SettingsError, match=said):
        read_run_config({**RUN, **change})


def test_two_methods_are_not_one_run(tmp_path: Path):
    path = tmp_path / "two.toml"
    path.write_text('methods = ["fedavg", "rfa"]\nseeds = [1]')
    with pytest.raises(SettingsError, match=r"methods: a deployment is one run, got \['fedavg', 'rfa'\]"):
        read_run_config({"experiment": str(path)})


@pytest.mark.parametrize(("sites", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_the_quorum_is_more_than_half_unless_it_is_given(sites: int, quorum: int):
    assert Deployment(sites=sites).min_answers == quorum
    assert Deployment(sites=sites, quorum=1).min_answers == 1


def test_a_node_config_names_the_site(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    node = read_node_config({"site": "berlin", "data": "/data", "privacy.clip": 5.0})
    assert (node.site, node.data, node.privacy) == ("berlin", Path("/data"), ReportPrivacy(clip=5.0))
    assert node.folder == Path("/state/fedpca/berlin")
    assert read_node_config({"site": "berlin", "store": "/mine"}).folder == Path("/mine")
    assert read_node_config({"partition-id": 7, "num-partitions": 9}).site == "7", "as in Flower's simulation"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"data": "/data"}, "this node has no name: start it with --node-config 'site="),
        ({"site": "../berlin"}, "the node config: site: .*match pattern"),
        ({"site": "berlin", "privacy.nosie": 1.0}, "unknown key 'privacy.nosie'"),
        ({"site": "berlin", "nosie": 1.0}, "unknown key 'nosie'"),
        ({"site": "berlin", "veil.noise": 1.0}, "the node config: unknown key 'veil': it is now called privacy"),
        ({"site": "berlin", "device": "gpu"}, "device: input should be cpu, mps, cuda or cuda:N .got: 'gpu'"),
    ],
)
def test_wrong_node_configs_are_refused(config: dict[str, object], said: str):
    with pytest.raises(SettingsError, match=said):
        read_node_config(config)


def test_a_users_own_app_may_have_keys_of_its_own():
    assert read_node_config({"site": "berlin", "scanner": "b7"}, strict=False).site == "berlin"
