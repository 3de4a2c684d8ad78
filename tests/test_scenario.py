import pytest
from pydantic import ValidationError

from fedpca.catalogue import METHODS
from fedpca.cli import shipped_experiments
from fedpca.faults import SettingsError
from fedpca.scenario import check_experiment, read_experiment, write_experiment


def read(tmp_path, text: str, *changes: str):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_experiment(path, changes)


def refusal(tmp_path, text: str, *changes: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text, *changes)
    return str(caught.value)


def test_a_file_says_only_what_differs_from_the_defaults(tmp_path):
    experiment = read(tmp_path, "rounds = 7\n[data]\nclients = 5\n[noise]\nclients = 0.4\nlabels = 0.8\n")
    assert (experiment.name, experiment.rounds, experiment.data.clients, experiment.noise.clients) == (
        "mine",
        7,
        5,
        0.4,
    )
    assert experiment.training.lr == 0.03


def test_settings_are_frozen(tmp_path):
    with pytest.raises(ValidationError, match="frozen"):
        read(tmp_path, "").rounds = 3


@pytest.mark.parametrize("path", shipped_experiments().values(), ids=lambda path: path.stem)
def test_shipped_experiments_are_valid_and_written_settings_read_back_equal(path, tmp_path):
    experiment = read_experiment(path)
    for settings in (experiment, experiment.cell(experiment.methods[0], 0)):
        (tmp_path / "again.toml").write_text(write_experiment(settings))
        assert read_experiment(tmp_path / "again.toml") == settings


def test_the_demo_is_20_clients_4_rare_4_mislabeled():
    demo = read_experiment(shipped_experiments()["digits"])
    assert demo.data.dataset == "digits"
    assert demo.data.clients == 20
    assert 20 * demo.rare.share == 4
    assert 20 * demo.noise.clients == 4


def test_changes_are_read_as_toml_and_else_as_text(tmp_path):
    experiment = read(tmp_path, "", "rounds=9", "model.name=resnet18", "seeds=[4, 5]", "rare.sigma = 0.3")
    assert (experiment.rounds, experiment.model.name, experiment.seeds, experiment.rare.sigma) == (
        9,
        "resnet18",
        (4, 5),
        0.3,
    )


def test_an_unknown_key_gets_file_key_neighbour_and_what_is_allowed(tmp_path):
    message = refusal(tmp_path, "[data]\nclients = 3\nclinets = 4\n")
    for word in ("mine.toml", "data.clinets", "did you mean 'clients'?", "[data] takes dataset, clients, split"):
        assert word in message


def test_an_unknown_key_at_the_top(tmp_path):
    assert "unknown key 'rouns' (did you mean 'rounds'?)" in refusal(tmp_path, "rouns = 3")


def test_a_value_out_of_range_gets_what_came(tmp_path):
    message = refusal(tmp_path, '[noise]\nlabels = 1.5\nmode = "exclude"')
    assert "noise.labels" in message
    assert "1.5" in message
    assert "less than or equal to 1" in message
    assert "'exclusive' or 'inclusive'" in message
    assert "'exclude'" in message


def test_all_faults_come_at_once(tmp_path):
    assert len(refusal(tmp_path, "rounds = 0\nseeds = []\n[rare]\nshare = 2.0").splitlines()) == 3


def test_a_method_that_is_not_there(tmp_path):
    assert "there is no method 'fedavgg' (did you mean 'fedavg'?)" in refusal(tmp_path, 'methods = ["fedavgg"]')
    assert "there is no method 'xyz'; there are " + ", ".join(METHODS) in refusal(tmp_path, "[method.xyz]\nq = 1")


def test_a_methods_settings_are_checked(tmp_path):
    assert "unknown key 'method.fedavg.q'; [method.fedavg] takes no key at all" in refusal(
        tmp_path, "[method.fedavg]\nq = 1"
    )


def test_no_method_twice(tmp_path):
    assert "none twice" in refusal(tmp_path, 'methods = ["fedavg", "fedavg"]')


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("[noise]\nclients = 0.2", "noise.clients = 0.2 and noise.labels = 0.0: give both, or neither"),
        ("[noise]\nlabels = 0.2", "give both, or neither"),
        ("rounds = 10\nmethods = ['fedpca-d']", "rounds = 10, but fedpca-d warms up for 10"),
        ("[model]\nname = 'resnet'", "no model 'resnet' (did you mean 'resnet18'?)"),
        ("methods = 'fedavg'", "methods: input should be a list, such as [\"fedavg\"] (came: 'fedavg')"),
        ("data = 3", "data: input should be a table (came: 3)"),
        ("name = '../escaped'", "since it names a folder (came: '../escaped')"),
        ("[method.fedpca-wo-fairness]\nq = 3.0", "unknown key 'method.fedpca-wo-fairness.q'"),
        ("[method.fedpca-d.mixture]\nstart = 3", "[method.fedpca-d.mixture] takes starts, covariance"),
        ('[data]\nsplit = "column"', "split = 'column' needs data.column"),
        ('[data]\nsplit = "sizes"', "split = 'sizes' needs data.sizes"),
        ('[data]\nsplit = "dirichlet"', "split = 'dirichlet' needs data.clients"),
        ('[data]\nclients = 3\nsplit = "sizes"\nsizes = [4, 5]', "data.clients = 3, but data.sizes lists 2"),
        ('[rare]\ncorruption = "jpeg"\nsigma = 0.1', "jpeg takes rare.severity"),
    ],
)
def test_settings_that_contradict_each_other(tmp_path, text: str, needed: str):
    assert needed in refusal(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"no settings file .*absent.toml"):
        read_experiment(tmp_path / "absent.toml")
    assert "is not valid TOML" in refusal(tmp_path, "rounds = = 3")
    assert "line 1" in refusal(tmp_path, "rounds = = 3")


@pytest.mark.parametrize("change", ["rounds", "=3"])
def test_a_change_that_is_none(tmp_path, change: str):
    assert "write it as key=value" in refusal(tmp_path, "", change)


def test_a_change_below_a_value(tmp_path):
    assert "'rounds' is a value, not a table" in refusal(tmp_path, "rounds = 3", "rounds.more=4")


def test_a_cell_spells_out_its_method(small):
    cell = small.cell("fedavg", 5)
    assert cell.methods == ("fedavg",)
    assert cell.seeds == (5,)
    assert cell.method == {"fedavg": {}}


def test_numbers_must_be_numbers():
    with pytest.raises(SettingsError, match="finite"):
        check_experiment({"training": {"lr": float("inf")}}, "x")
