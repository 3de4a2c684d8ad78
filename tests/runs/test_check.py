import pytest
from pydantic import ValidationError

from fedpca.errors import SettingsError
from fedpca.methods.registry import method_names
from fedpca.runs.check import check_experiment, one_run, read_experiment, read_settings, read_stored
from fedpca.settings.shipped import shipped_experiments
from fedpca.settings.toml import write_table


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


@pytest.mark.parametrize("name", shipped_experiments())
def test_shipped_experiments_are_valid_and_written_settings_read_back_equal(name: str, tmp_path):
    for experiment in read_settings(shipped_experiments()[name]).values():
        for settings in (experiment, one_run(experiment, experiment.methods[0], 0)):
            (tmp_path / "again.toml").write_text(write_table(settings))
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
    assert "a share from 0 to 1" in message
    assert "'exclusive' or 'inclusive'" in message
    assert "'exclude'" in message


def test_all_faults_come_at_once(tmp_path):
    assert len(refusal(tmp_path, "rounds = 0\nseeds = []\n[rare]\nshare = 2.0").splitlines()) == 3


def test_a_method_that_is_not_there(tmp_path):
    assert "there is no method 'fedavgg' (did you mean 'fedavg'?)" in refusal(tmp_path, 'methods = ["fedavgg"]')
    assert "there is no method 'xyz'; there are " + ", ".join(method_names()) in refusal(
        tmp_path, "[method.xyz]\nq = 1"
    )


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
        ("methods = 'fedavg'", "methods: input should be a list, such as [\"fedavg\"] (got: 'fedavg')"),
        ("data = 3", "data: input should be a table (got: 3)"),
        ("name = '../escaped'", "since it names a folder (got: '../escaped')"),
        (
            "[method.fedpca-wo-fairness]\nq = 3.0",
            "method.fedpca-wo-fairness.q is fixed at 0.0, since that makes fedpca-wo",
        ),
        (
            "[method.fedpca-d.identify.mixture]\nstart = 3",
            "[method.fedpca-d.identify.mixture] takes starts, covariance",
        ),
        (
            "[method.fedpca-d.mixture]\nstarts = 3",
            "'method.fedpca-d.mixture': it is now called method.fedpca-d.identify.mixture",
        ),
        ("[method.fedpca-hs]\nleast_confidence = 0.5", "now called method.fedpca-hs.high_confidence.min_confidence"),
        (
            "[method.fedpca-hs]\ndispersion_depth = 3.0",
            "unknown key 'method.fedpca-hs.dispersion_depth': in its place set method.fedpca-hs.max_lift, which bounds "
            "the weight itself, in multiples of the median client's weight per image",
        ),
        ("[method.fedpca-d]\nmax_lift = 0.5", "method.fedpca-d.max_lift: input should be greater than or equal to 1"),
        ("[data]\nclients = 3\nleast = 4", "unknown key 'data.least': it is now called data.min_images"),
        ("[rare]\nclean = 0.5", "unknown key 'rare.clean': it is now called rare.clean_share"),
        ('[data]\nsplit = "column"', "split = 'column' needs data.column"),
        ('[data]\nsplit = "sizes"', "split = 'sizes' needs data.sizes"),
        (
            '[data]\nsplit = "column"\ncolumn = "center"\nclients = 3',
            "data.clients = 3, but split = 'column' takes its clients from the column 'center': leave data.clients out",
        ),
        ('[data]\nsplit = "dirichlet"', "split = 'dirichlet' needs data.clients"),
        ('[data]\nclients = 3\nsplit = "sizes"\nsizes = [4, 5]', "data.clients = 3, but data.sizes lists 2"),
    ],
)
def test_settings_that_contradict_each_other(tmp_path, text: str, needed: str):
    assert needed in refusal(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"no settings file .*absent.toml"):
        read_experiment(tmp_path / "absent.toml")
    assert "is not valid TOML" in refusal(tmp_path, "rounds = = 3")
    assert "line 1" in refusal(tmp_path, "rounds = = 3")


def test_a_run_folder_that_says_how_many_clients_a_column_has_is_still_read(tmp_path):
    """Version 0.1 did not refuse it."""
    (tmp_path / "settings.toml").write_text('[data]\nsplit = "column"\ncolumn = "center"\nclients = 3\n')
    assert read_stored(tmp_path / "settings.toml").data.clients == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["rounds=0"], "--set rounds=0 on top of "),
        (["seeds=[1]", "rounds=0"], "--set rounds=0 on top of "),
        (["model.name=xyz"], "--set model.name=xyz on top of "),
        (["data.clinets=4"], "--set data.clinets=4 on top of "),
        (['methods=["xyz"]'], '--set methods=["xyz"] on top of '),
        (["method.fedavg.q=1"], "--set method.fedavg.q=1 on top of "),
        (["noise.clients=0.2"], "--set noise.clients=0.2 on top of "),
        (["rounds=0", "rounds=0"], "--set rounds=0 --set rounds=0 on top of "),
    ],
)
def test_an_error_of_a_change_names_the_change(tmp_path, changes: list[str], said: str):
    message = refusal(tmp_path, "rounds = 4\n[data]\nclients = 5", *changes)
    assert message.startswith(f"{said}{tmp_path / 'mine.toml'}: ")
    assert len(message.splitlines()) == 1


def test_an_error_of_the_file_names_the_file_alone(tmp_path):
    message = refusal(tmp_path, "[training]\nlr = -1", "rounds=5")
    assert message.startswith(f"{tmp_path / 'mine.toml'}: training.lr")
    both = refusal(tmp_path, "[training]\nlr = -1", "rounds=0").splitlines()
    assert [line.startswith("--set rounds=0 on top of ") for line in sorted(both)] == [True, False]


def test_a_change_that_mends_the_file_is_not_blamed_for_another(tmp_path):
    message = refusal(tmp_path, "[data]\nalpha = 1.0", "data.clients=3", "model.name=xyz")
    assert message.startswith("--set model.name=xyz on top of ")


def test_changes_that_other_options_make_are_called_by_these(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("")
    with pytest.raises(SettingsError) as caught:
        read_settings(path, ['methods=["xyz"]'], options={'methods=["xyz"]': "--method xyz"})
    assert str(caught.value).startswith(f"--method xyz on top of {path}: there is no method 'xyz'; there are fedavg")


def test_a_long_value_is_cut_in_messages(tmp_path):
    assert len(refusal(tmp_path, f"rounds = '{'x' * 9999}'")) < 400
    assert len(refusal(tmp_path, "", f"rounds={'x' * 9999}")) < 500


@pytest.mark.parametrize("change", ["rounds", "=3"])
def test_a_change_that_is_none(tmp_path, change: str):
    assert "write it as key=value" in refusal(tmp_path, "", change)


def test_a_change_below_a_value(tmp_path):
    assert "'rounds' is a value, not a table" in refusal(tmp_path, "rounds = 3", "rounds.more=4")


def test_a_cell_spells_out_its_method(small):
    cell = one_run(small, "fedavg", 5)
    assert cell.methods == ("fedavg",)
    assert cell.seeds == (5,)
    assert cell.method == {"fedavg": {}}


def test_numbers_must_be_numbers():
    with pytest.raises(SettingsError, match="finite"):
        check_experiment({"training": {"lr": float("inf")}}, "x")


SEVERAL = """
rounds = 20
methods = ["fedavg", "fedpca-d"]
[data]
clients = 10
[noise]
clients = 0.2
labels = 1.0
[method.fedpca-d]
q = 2.0
warmup = 4
[setting."rho=.2 eta=1"]
[setting."rho=.4 eta=.8"]
noise = {clients = 0.4, labels = 0.8}
[setting.long]
rounds = 50
methods = ["fedpca-d"]
method.fedpca-d.q = 3.0
"""


def read_all(tmp_path, text: str, *changes: str, only: tuple[str, ...] = ()):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_settings(path, changes, only)


def refused(tmp_path, text: str, *changes: str, only: tuple[str, ...] = ()) -> str:
    with pytest.raises(SettingsError) as caught:
        read_all(tmp_path, text, *changes, only=only)
    return str(caught.value)


def test_settings_are_merged_deeply_over_the_rest_of_the_file(tmp_path):
    settings = read_all(tmp_path, SEVERAL)
    assert list(settings) == ["rho=.2 eta=1", "rho=.4 eta=.8", "long"]
    plain = read(tmp_path, SEVERAL.partition("[setting")[0])
    first, second, long = settings.values()
    assert first == plain
    assert second == plain.model_copy(update={"noise": plain.noise.model_copy(update={"clients": 0.4, "labels": 0.8})})
    assert (long.rounds, long.methods, long.noise) == (50, ("fedpca-d",), plain.noise)
    assert long.method == {"fedpca-d": {"q": 3.0, "warmup": 4}}
    assert first.method == {"fedpca-d": {"q": 2.0, "warmup": 4}}


def test_a_file_without_settings_is_one_experiment_without_a_name(tmp_path):
    assert read_all(tmp_path, "rounds = 7") == {"": read(tmp_path, "rounds = 7")}


def test_changes_are_on_top_of_every_setting(tmp_path):
    changes = ("noise.labels=0.5", "rounds=9", "method.fedpca-d.warmup=3")
    settings = read_all(tmp_path, SEVERAL, *changes)
    assert [(own.noise.clients, own.noise.labels) for own in settings.values()] == [(0.2, 0.5), (0.4, 0.5), (0.2, 0.5)]
    assert [own.rounds for own in settings.values()] == [9, 9, 9]
    assert [own.method["fedpca-d"] for own in settings.values()] == [
        {"q": 2.0, "warmup": 3},
        {"q": 2.0, "warmup": 3},
        {"q": 3.0, "warmup": 3},
    ]


def test_settings_are_chosen_by_name_in_the_files_order(tmp_path):
    assert list(read_all(tmp_path, SEVERAL, only=("long", "rho=.2 eta=1"))) == ["rho=.2 eta=1", "long"]
    message = refused(tmp_path, SEVERAL, only=("rho=.4",))
    assert "mine.toml: there is no setting 'rho=.4' (did you mean 'rho=.4 eta=.8'?)" in message
    assert "it has none, so leave --setting out" in refused(tmp_path, "rounds = 3", only=("long",))


def test_a_fault_names_its_setting(tmp_path):
    message = refused(tmp_path, SEVERAL + "training.lr = -1\nnoise.clints = 0.1")
    assert len(message.splitlines()) == 2
    for line in message.splitlines():
        assert "mine.toml, setting 'long': " in line
    assert "did you mean 'clients'?" in message
    assert "setting 'long': rounds = 3, but fedpca-d warms up for 4" in refused(
        tmp_path, SEVERAL, "rounds=3", only=("long",)
    )


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("setting = 3", 'setting: needs tables such as [setting."rho=0.2 eta=1"] (got: 3)'),
        ("[setting]", "setting: needs tables such as"),
        ("[setting]\na = 3", "setting 'a': input should be a table (got: 3)"),
        ("[setting.'../a']\nrounds = 3", "setting '../a': its name should be letters"),
        ("[setting.'']\nrounds = 3", "since it names a folder"),
        ("[setting.a]\nname = 'b'", "setting 'a': a setting may change anything but name and setting: remove 'name'"),
        ("[setting.a.setting.b]\nrounds = 3", "remove 'setting'"),
    ],
)
def test_settings_that_are_none(tmp_path, text: str, needed: str):
    assert needed in refused(tmp_path, text)


def test_a_run_stands_in_one_setting_alone(tmp_path):
    """Played twice it would count as another seed."""
    one, two = (f"[setting.{name}]\nmethod.qfedavg.q = {q}\n" for name, q in (("one", 1.0), ("two", 2.0)))
    sweep = f"methods = ['fedavg', 'qfedavg']\n{one}{two}"
    message = refused(tmp_path, sweep)
    assert "the settings 'one' and 'two' hold the same run, fedavg seed 0" in message
    assert list(read_all(tmp_path, sweep + "methods = ['qfedavg']")) == ["one", "two"]
    assert list(read_all(tmp_path, sweep, only=("two",))) == ["two"]


def test_one_experiment_is_not_read_from_a_file_of_several(tmp_path):
    assert "holds several settings (rho=.2 eta=1, rho=.4 eta=.8, long): read_settings" in refusal(tmp_path, SEVERAL)


def test_arguments_of_a_model_are_kept_and_refused_where_none_are_taken(tmp_path):
    text = '[model]\nname = "{}"\n[model.args]\nwidth = 32\nsizes = [1, 2]\n'
    experiment = read(tmp_path, text.format("mine:build"), "model.args.width=8")
    assert experiment.model.args == {"width": 8, "sizes": [1, 2]}
    (tmp_path / "again.toml").write_text(write_table(experiment))
    assert read_experiment(tmp_path / "again.toml") == experiment
    said = refusal(tmp_path, text.format("mlp"))
    assert "model.args are for a function of your own" in said
    assert "mlp takes none" in said
    assert "width, sizes" in said
