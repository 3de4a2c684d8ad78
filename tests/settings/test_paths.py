import pytest

from fedpca.errors import DataError
from fedpca.runs.check import read_settings
from fedpca.settings.toml import write_table


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A settings file with its data, seen from another folder, in which a file of the same name lies."""
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for place in (folder, elsewhere):
        (place / "images").mkdir(parents=True)
        for name in ("own.csv", "start.safetensors"):
            (place / name).touch()
    monkeypatch.chdir(elsewhere)
    return folder


def read(folder, text, *changes):
    (folder / "own.toml").write_text(text)
    return read_settings(folder / "own.toml", changes)[""]


ALL = (
    '[data]\ndataset = "own.csv"\nimage_root = "images"\nclients = 2\n'
    '[model]\nname = "resnet18-imagenet"\nweights = "start.safetensors"\n'
)


def test_paths_are_relative_to_the_file(project):
    experiment = read(project, ALL)
    assert experiment.data.dataset == str(project / "own.csv")
    assert experiment.data.image_root == project / "images"
    assert experiment.model.weights == project / "start.safetensors"


def test_the_same_file_named_from_its_own_folder_gives_the_same_settings(project, monkeypatch):
    from pathlib import Path

    from_elsewhere = read(project, ALL)
    monkeypatch.chdir(project)
    assert read_settings(Path("own.toml"))[""] == from_elsewhere


def test_what_a_run_folder_stores_means_the_same_anywhere(project):
    experiment = read(project, ALL)
    stored = project / "runs" / "settings.toml"
    stored.parent.mkdir()
    stored.write_text(write_table(experiment))
    assert read_settings(stored)[""].data == experiment.data


def test_changes_are_relative_to_the_current_folder(project):
    assert read(project, ALL, "data.dataset=own.csv").data.dataset == "own.csv"


@pytest.mark.parametrize("name", ["digits", "hospitals", "cifar10"])
def test_names_stay_names_although_a_folder_is_called_so(project, name):
    (project / name).mkdir()
    assert read(project, f'[data]\ndataset = "{name}"\nclients = 2\n').data.dataset == name


def test_published_weights_are_no_path(project):
    (project / "imagenet").mkdir()
    text = '[model]\nname = "resnet18-imagenet"\nweights = "imagenet"\n'
    assert str(read(project, text).model.weights) == "imagenet"


def test_what_is_not_beside_the_file_is_looked_for_as_before(project):
    text = '[data]\ndataset = "{}"\nclients = 2\n'
    assert read(project, text.format("center/scans")).data.dataset == "center/scans"
    assert read(project, text.format("~/scans.csv")).data.dataset == "~/scans.csv"
    (project / "center" / "scans").mkdir(parents=True)
    assert read(project, text.format("center/scans")).data.dataset == str(project / "center" / "scans")


def test_a_path_with_a_dot_is_missed_where_the_file_is(project):
    from fedpca.data.datasets import load

    experiment = read(project, '[data]\ndataset = "./scans.npz"\nclients = 2\n')
    with pytest.raises(DataError, match=str(project / "scans.npz")):
        load(experiment.data)


def test_every_setting_of_a_file_has_its_own_paths(project):
    (project / "own.toml").write_text('[data]\nclients = 2\n[setting.a.data]\ndataset = "own.csv"\n[setting.b]\n')
    read_all = read_settings(project / "own.toml")
    assert [own.data.dataset for own in read_all.values()] == [str(project / "own.csv"), "digits"]
