import csv
import io
import json
from pathlib import Path

import pytest

from fedpca.errors import RunError
from fedpca.results.read.runs import find_runs
from fedpca.results.tables.plain import as_csv, as_json
from fedpca.results.tables.rows import Results, tabulate
from fedpca.runs.check import check_experiment, one_run
from fedpca.settings.toml import write_table

ABOUT = {"dataset": "digits", "clients": {"id": ["0", "1", "10"]}, "rare": ["10"], "mislabeled": ["1"]}


def line(number: int, scores: dict[str, float], shares: dict | None = None, groups: list | None = None) -> dict:
    judged = {"precision": 1, "recall": 0.5, "f1": 2 / 3, "accused_common": 0, "accused_rare": 1}
    return {
        "round": number,
        "groups": {g: {"acc": v, "bacc": v / 2, "auc": v, "auc_ovo": v} for g, v in scores.items()},
        "clients": {"id": ["0", "1", "10"], "group": groups},
        "identification": judged if groups else None,
        "weights": shares,
    }


def write_run(
    folder: Path,
    seed: int = 0,
    values: list[tuple[float, ...]] = ((0.9, 0.8),),
    rounds: int = 12,
    method: str = "fedavg",
    shares: dict | None = None,
    groups: list | None = None,
    about: dict = ABOUT,
    settings: dict | None = None,
    **tables: object,
):
    """A run folder whose rounds have these accuracies of the common and, if given, the rare group."""
    given = {"name": "made", "rounds": rounds, "methods": [method], "seeds": [seed], "method": settings or {}, **tables}
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(write_table(one_run(check_experiment(given, "made"), method, seed)))
    (folder / "about.json").write_text(json.dumps(about))
    scores = [dict(zip(("common", "rare"), pair, strict=False)) for pair in values]
    lines = [line(i + 1, each, shares, groups) for i, each in enumerate(scores)]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))


def tables_of(folder: Path) -> list[Results]:
    return tabulate(find_runs([folder]))


def test_seeds_are_pooled_as_the_specification_says(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.80, 0.70)], rounds=1)
    write_run(tmp_path / "b", 1, [(0.82, 0.84)], rounds=1)
    (results,) = tables_of(tmp_path)
    (row,) = results.rows
    assert (row.scores["acc"].worst.mean, row.scores["acc"].worst.std) == pytest.approx(
        (77, 7)
    )  # the rare group's: not of each round's least
    assert row.scores["acc"].average.mean == pytest.approx(79)
    assert row.scores["acc"].std.mean == pytest.approx(3)
    assert row.scores["bacc"].worst.mean == pytest.approx(38.5)
    assert row.seeds == 2
    assert row.weight is None
    assert results.title == "made: digits, 3 clients, 1 rare, 1 mislabeled (0% of their labels), 1 rounds"


def test_only_the_last_five_rounds_count(tmp_path: Path):
    write_run(tmp_path / "a", 0, [(0.0, 0.0)] * 3 + [(0.9, 0.8)] * 5, rounds=8)
    assert tables_of(tmp_path)[0].rows[0].scores["acc"].worst.mean == pytest.approx(80)


def test_weights_are_averaged_over_all_rounds_where_somebody_is_rare(tmp_path: Path):
    shares = {"rare": 0.1, "mislabeled": 0.2}
    write_run(tmp_path / "a", 0, [(0.9, 0.8)] * 2, shares=shares)
    assert tables_of(tmp_path)[0].rows[0].weight == pytest.approx(0.08)
    write_run(tmp_path / "b/c", 0, [(0.9, 0.8)] * 2, shares={"rare": 0, "mislabeled": 0.2}, about={**ABOUT, "rare": []})
    assert tables_of(tmp_path / "b")[0].rows[0].weight is None


def test_other_scenarios_get_tables_of_their_own(tmp_path: Path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", noise={"clients": 0.2, "labels": 1.0})
    assert len(tables_of(tmp_path)) == 2


def test_a_title_names_the_setting_unless_the_table_holds_several(tmp_path: Path):
    write_run(tmp_path / "a", about={**ABOUT, "setting": "q=1"})
    write_run(tmp_path / "b", 1, about={**ABOUT, "setting": "q=2"})
    noise = {"clients": 0.2, "labels": 1.0}
    write_run(tmp_path / "c", about={**ABOUT, "setting": "rho=.2"}, noise=noise, name="mine")
    several, one = (results.title.partition(":")[0] for results in tables_of(tmp_path))
    assert "q=" not in several
    assert one == "mine, rho=.2"


def test_runs_under_way_are_counted_and_a_line_being_written_is_passed_over(tmp_path: Path):
    write_run(tmp_path / "a", rounds=5)
    with (tmp_path / "a/rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "gr')
    (results,) = tables_of(tmp_path)
    assert results.rows[0].unfinished == 1


def test_rows_stand_by_category_then_as_in_the_catalogue(tmp_path: Path):
    methods = [
        "fedpca-d",
        "median+rfa",
        "rfa",
        "fedavg",
        "median+d",
        "fedga+d",
        "fedpca-wo-fairness",
        "median",
        "fedga",
    ]
    for method in methods:
        write_run(tmp_path / method, method=method)
    (results,) = tables_of(tmp_path)
    assert [(row.category, row.name) for row in results.rows] == [
        ("Baseline", "fedavg"),
        ("Fair", "fedga"),
        ("Robust", "median"),
        ("Robust", "rfa"),
        ("Fair + Robust", "median+rfa"),
        ("FedPCA", "fedpca-d"),
        ("Ablations", "fedpca-wo-fairness"),
        ("With (D)", "fedga+d"),
        ("With (D)", "median+d"),
    ]


def test_a_method_from_outside_has_a_category_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = "from fedpca import method\n\n\n@method()\ndef mine(plan, settings):\n    '''Mine.'''\n"
    (tmp_path / "own_method.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    write_run(tmp_path / "a", method="own_method:mine")
    (row,) = tables_of(tmp_path)[0].rows
    assert (row.category, row.method) == ("Outside", "own_method:mine")


def test_a_method_under_other_settings_has_a_row_of_its_own(tmp_path: Path):
    """What tells rows apart is named, a default too; numbers by their size."""
    for name, q in (("a", 10.0), ("b", 3.0), ("c", 1.0)):
        write_run(tmp_path / name, values=[(0.9, q / 20)], method="fedpca-d", settings={"fedpca-d": {"q": q}})
    write_run(tmp_path / "d", method="fedpca-hs", settings={"fedpca-hs": {"q": 1.0}})
    (results,) = tables_of(tmp_path)
    names = ["fedpca-d (q=1.0)", "fedpca-d (q=3.0)", "fedpca-d (q=10.0)", "fedpca-hs"]
    assert [(row.method, row.seeds) for row in results.rows] == [(name, 1) for name in names]


def test_csv_has_everything_in_full_precision(tmp_path: Path):
    groups = ["common", "mislabeled", "mislabeled"]
    write_run(tmp_path / "a", 0, [(0.9, 1 / 3)], groups=groups, noise={"clients": 0.3, "labels": 0.7})
    (row,) = csv.DictReader(io.StringIO(as_csv(tables_of(tmp_path))))
    assert float(row["worst_acc"]) == pytest.approx(100 / 3, abs=1e-12)
    assert float(row["f1"]) == pytest.approx(2 / 3, abs=1e-12)
    assert (row["rho"], row["eta"], row["category"], row["method"]) == ("0.3", "0.7", "Baseline", "fedavg")
    assert (row["w_r_times_not_w_m"], row["unfinished"]) == ("", "1")
    assert not any(name.startswith("paper") for name in row)


def test_scenarios_are_told_apart_by_the_settings_in_which_they_differ(tmp_path: Path):
    write_run(tmp_path / "a", model={"name": "mlp"})
    write_run(tmp_path / "b", model={"name": "cnn-small"}, data={"clients": 20, "train_images": 100})
    write_run(tmp_path / "c", seed=1, model={"name": "mlp"})
    tables = tables_of(tmp_path)
    assert [results.title.partition("; ")[2] for results in tables] == [
        "data.train_images not set, model.name=mlp",
        "data.train_images=100, model.name=cnn-small",
    ]
    lines = list(csv.DictReader(io.StringIO(as_csv(tables))))
    assert [(line["model.name"], line["data.train_images"]) for line in lines] == [("mlp", ""), ("cnn-small", "100")]
    assert [table["distinction"]["model.name"] for table in as_json(tables)] == ["mlp", "cnn-small"]


def test_one_scenario_needs_nothing_to_be_told_apart(tmp_path: Path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", seed=1, device="cuda")
    (results,) = tables_of(tmp_path)
    assert ";" not in results.title
    assert results.distinction == {}


def test_what_every_title_has_is_said_once(tmp_path: Path):
    write_run(tmp_path / "a", rounds=5)
    write_run(tmp_path / "b", rounds=6, name="other")
    tables = tables_of(tmp_path)
    assert [results.title.rpartition(", ")[2] for results in tables] == ["5 rounds", "6 rounds"]
    assert [line["rounds"] for line in csv.DictReader(io.StringIO(as_csv(tables)))] == ["5", "6"]


def test_json_is_plain_data(tmp_path: Path):
    write_run(tmp_path / "a", groups=["common", "mislabeled", None])
    (table,) = json.loads(json.dumps(as_json(tables_of(tmp_path))))
    (row,) = table["rows"]
    assert row["acc"]["worst"]["mean"] == pytest.approx(80)
    assert row["found"]["accused"] == {"1": 1}
    assert (table["dataset"], table["rho"], table["mislabeled"]) == ("digits", 0, ["1"])


def test_nobody_needs_to_know_the_truth(tmp_path: Path):
    write_run(tmp_path / "a", about={"dataset": "own", "clients": {"id": ["0", "1", "10"]}})
    (results,) = tables_of(tmp_path)
    assert results.title == "made: own, 3 clients, 12 rounds"
    assert (results.rare, results.mislabeled, results.rows[0].weight) == (None, None, None)


def test_folders_without_runs_are_named(tmp_path: Path):
    with pytest.raises(RunError, match="no folder"):
        find_runs([tmp_path / "absent"])
    with pytest.raises(RunError, match="no run with a tested round"):
        find_runs([tmp_path])


def test_the_same_run_twice_is_refused(tmp_path: Path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    with pytest.raises(RunError, match="hold the same run"):
        find_runs([tmp_path])


def test_foreign_and_broken_folders(tmp_path: Path):
    write_run(tmp_path / "good")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/settings.toml").write_text("")
    assert len(find_runs([tmp_path])) == 1
    (tmp_path / "good/about.json").write_text("{")
    with pytest.raises(RunError, match="good cannot be read"):
        find_runs([tmp_path])


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("about.json", "{", "Expecting"),
        ("about.json", '{"clients": {"id": []}}', "about.json has no 'dataset'"),
        ("about.json", None, "No such file"),
        ("settings.toml", "rounds = [", "not valid TOML"),
        ("settings.toml", "strange = 1", "unknown key 'strange'"),
        ("settings.toml", None, "there is no settings file"),
        ("rounds.jsonl", "{\n", "Expecting"),
        ("rounds.jsonl", "[]\n", "a line of rounds.jsonl must be a JSON object"),
    ],
)
def test_one_unreadable_folder_is_named_and_passed_over(tmp_path: Path, file: str, content: str | None, reason: str):
    write_run(tmp_path / "broken")
    write_run(tmp_path / "good", seed=1)
    path = tmp_path / "broken" / file
    path.unlink() if content is None else path.write_text(content)
    said: list[str] = []
    assert [run.seed for run in find_runs([tmp_path], said.append)] == [1]
    (words,) = said
    assert words.startswith(f"passed over: the run folder {tmp_path / 'broken'} cannot be read: ")
    assert reason in words


def test_a_run_that_writes_its_first_files_is_no_error(tmp_path: Path):
    write_run(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/rounds.jsonl").write_text("")
    said: list[str] = []
    assert len(find_runs([tmp_path], said.append)) == 1
    assert said == []


def test_a_run_without_a_tested_round_is_not_shown_yet(tmp_path: Path):
    write_run(tmp_path / "a")
    lines = (tmp_path / "a/rounds.jsonl").read_text()
    (tmp_path / "a/rounds.jsonl").write_text(json.dumps({**json.loads(lines), "groups": None}) + "\n")
    with pytest.raises(RunError, match="no run with a tested round"):
        find_runs([tmp_path])
