"""Where nobody knows the truth nothing speaks of it, in any output, and the hospital with wrong labels is named.

Five hospitals in a CSV file, one of which has half of its labels wrong, played as a user would.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from fedpca.data.datasets import digits
from fedpca.results.figures import FIGURES
from fedpca.results.page import write_page
from fedpca.results.read.runs import Run, find_runs
from fedpca.results.tables import tabulate
from fedpca.runs.trackers.base import scalars_of
from tests.results.conftest import show

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

HOSPITALS, BAD, EACH = ("Aachen", "Bonn", "Essen", "Köln", "Mainz"), "Köln", 120
FORBIDDEN = re.compile(r"truly|wrongly|precision|recall|\bF1\b|wrong (common|rare)|w_r", re.IGNORECASE)
SETTINGS = """
rounds = 10
seeds = [0]
methods = ["fedavg", "fedpca-hs-auto"]
data = {{dataset = "{table}", split = "column", column = "hospital"{more}}}
model = {{name = "mlp"}}
training = {{batch = 16, lr = 0.1}}
evaluation = {{features = 5}}
method."fedpca-hs-auto".warmup = 4
{tables}
"""


def write_hospitals(folder: Path) -> Path:
    """Images of digits; every second label of one hospital is that of another digit."""
    part, rows = digits().train, []
    (folder / "images").mkdir(parents=True)
    for row in range(EACH * len(HOSPITALS)):
        hospital, true = HOSPITALS[row % len(HOSPITALS)], int(part.labels[row])
        wrong = hospital == BAD and row // len(HOSPITALS) % 2 == 0
        Image.fromarray(part.images[row, 0]).save(folder / f"images/{row}.png")
        label = (true + 1 + row % 9) % 10 if wrong else true
        rows.append((f"images/{row}.png", label, true, hospital))
    table = folder / "hospitals.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "label", "checked", "hospital"), *rows])
    return table


def fedpca(folder: Path, *words: object) -> str:
    """What the command prints, on both streams."""
    command = [sys.executable, "-m", "fedpca", *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def play(folder: Path, table: Path, out: str, more: str = "", tables: str = "") -> str:
    (folder / f"{out}.toml").write_text(SETTINGS.format(table=table, more=more, tables=tables), encoding="utf-8")
    return fedpca(folder, "run", f"{out}.toml", "--out", out)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPCA_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def table(home: Path) -> Path:
    return write_hospitals(home)


@pytest.fixture(scope="module")
def screen(home: Path, table: Path) -> str:
    return play(home, table, "own")


@pytest.fixture(scope="module")
def runs(home: Path, screen: str) -> list[Run]:
    return find_runs([home / "own"])


def judged(runs: list[Run]) -> Run:
    return next(run for run in runs if run.method == "fedpca-hs-auto")


def test_the_screen(screen: str):
    assert not FORBIDDEN.search(screen)
    assert "nobody knows which labels are true" in screen
    assert "Judged mislabeled (the truth is not known)" in screen
    assert re.search(rf"fedpca-hs-auto[^\n]* {BAD} ", screen)


@pytest.mark.usefixtures("screen")
def test_files_of_tables_and_the_page(home: Path):
    names = {"--markdown": "t.md", "--latex": "t.tex", "--csv": "t.csv", "--clients": "c.csv", "--html": "page.html"}
    fedpca(home, "results", "own", *(word for option in names.items() for word in option))
    page = re.sub(r"<(script|style)>.*?</\1>", "", (home / "page.html").read_text("utf-8"), flags=re.DOTALL)
    for text in (*((home / name).read_text("utf-8") for name in ("t.md", "t.tex", "t.csv", "c.csv")), page):
        assert not FORBIDDEN.search(text)
        assert BAD in text
    assert f"1 of the 5 clients is judged mislabeled: client {BAD}." in page
    judged_table = (home / "t.md").read_text("utf-8").partition("### Judged mislabeled")[2].partition("###")[0]
    assert BAD in judged_table
    assert "0.00" not in judged_table
    rows = list(csv.DictReader(io.StringIO((home / "t.csv").read_text("utf-8"))))
    assert [(row["rho"], row["eta"], row["judged_mislabeled"]) for row in rows] == [("", "", ""), ("", "", BAD)]


def test_the_page_in_a_browser(browser: Chrome, runs: list[Run], tmp_path: Path):
    """What scripts draw and write, too."""
    show(browser, tmp_path, write_page(runs))
    seen = browser.execute_script("return document.body.innerText")
    assert f"judged mislabeled: client {BAD}" in seen
    assert not FORBIDDEN.search(seen)


@pytest.mark.usefixtures("screen")
def test_a_dry_run_says_what_is_known(home: Path):
    shown = fedpca(home, "run", "own.toml", "--out", "other", "--dry-run")
    assert re.search(r"truth +nobody knows which labels are true", shown)
    assert not FORBIDDEN.search(shown)


@pytest.mark.usefixtures("screen")
def test_json_has_null_and_not_zero(home: Path):
    (results,) = json.loads(fedpca(home, "results", "own", "--json"))
    assert [results[name] for name in ("mislabeled", "rho", "eta")] == [None] * 3
    found = results["rows"][1]["found"]
    assert [found[name] for name in ("precision", "recall", "f1", "accused_common", "accused_rare")] == [None] * 5
    assert found["accused"] == {BAD: 1}
    assert results["rows"][1]["weight"] is None


def test_the_run_folder_and_trackers(runs: list[Run]):
    for run in runs:
        assert run.about["truth"] == "unknown"
        assert not {"rare", "mislabeled"} & run.about.keys()
        assert run.about["clients"].keys() == {"id", "size"}
        assert all(line["identification"] is None and line["weights"] is None for line in run.rounds)
        names = {name for line in run.rounds for name in scalars_of(line, "acc")}
        assert not any(name.startswith(("identification", "weight")) for name in names)
    assert "clients/judged_mislabeled" in scalars_of(judged(runs).rounds[-1], "acc")


def test_figures(runs: list[Run]):
    pytest.importorskip("matplotlib")
    from matplotlib.text import Text

    drawn = {name: FIGURES[name].draw(runs) for name in FIGURES}
    texts = {name: " ".join(t.get_text() for t in figure.findobj(Text)) for name, figure in drawn.items() if figure}
    assert {"plane", "accuracy", "identification", "features"} <= texts.keys()
    assert all(BAD in texts[name] for name in ("plane", "identification"))
    for text in (*texts.values(), *(FIGURES[name].lacking for name in FIGURES)):
        assert not FORBIDDEN.search(text)


def test_wrong_labels_that_are_injected_are_known_and_that_is_said(home: Path, table: Path):
    shown = play(home, table, "injected", tables="noise = {clients = 0.2, labels = 0.8}")
    assert shown.count("labels of the data are taken as true") >= 2, "before the run, and in the title of its table"
    (first, *_) = find_runs([home / "injected"])
    assert len(first.about["mislabeled"]) == 1
    assert "truly: " in shown


def test_a_column_of_true_labels_makes_the_truth_known(home: Path, table: Path):
    shown = play(home, table, "column", more=', truth_column = "checked"')
    assert f"truly: {BAD}" in shown
    assert "1 mislabeled, true labels in column checked" in shown
    run = judged(find_runs([home / "column"]))
    wrong = dict(zip(run.about["clients"]["id"], run.about["clients"]["wrong_labels"], strict=True))
    assert wrong.pop(BAD) == pytest.approx(EACH * 0.8 / 2, abs=12)  # of those that are not for testing
    assert set(wrong.values()) == {0}
    assert run.rounds[-1]["identification"] == {
        "precision": 1.0, "recall": 1.0, "f1": 1.0, "accused_common": 0, "accused_rare": 0,
    }  # fmt: skip


def test_runs_of_earlier_versions_claimed_a_truth_about_own_data(home: Path, runs: list[Run], tmp_path: Path):
    """They wrote that nobody is mislabeled, and how wrong judgements therefore were."""
    old = tmp_path / "old"
    old.mkdir()
    source = judged(runs)
    (old / "settings.toml").write_text((source.folder / "settings.toml").read_text("utf-8"), encoding="utf-8")
    about = {**source.about, "rare": [], "mislabeled": []}
    del about["truth"]
    about["clients"]["wrong_labels"] = [0] * len(HOSPITALS)
    (old / "about.json").write_text(json.dumps(about), encoding="utf-8")
    claims = {"precision": 0.0, "recall": 1.0, "f1": 0.0, "accused_common": 1, "accused_rare": 0}
    lines = [{**line, "identification": claims, "weights": {"rare": 0.0, "mislabeled": 0.0}} for line in source.rounds]
    (old / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (results,) = tabulate(find_runs([old]))
    (row,) = results.rows
    assert results.mislabeled is None
    assert row.judged is not None
    assert (row.judged.precision, row.judged.accused, row.weight) == (None, {BAD: 1}, None)


@pytest.mark.parametrize("truth", ["assumed", "unknown"])
def test_a_column_and_a_word_for_the_truth_contradict_each_other(truth: str):
    from fedpca.errors import SettingsError
    from fedpca.runs.check import check_experiment

    with pytest.raises(SettingsError, match="give one of them"):
        check_experiment({"data": {"clients": 5, "truth": truth, "truth_column": "checked"}}, "own.toml")


def test_true_labels_are_classes():
    from fedpca.data.cache import Part
    from fedpca.data.truth import true_labels
    from fedpca.errors import DataError

    part = Part(np.zeros((3, 1, 2, 2), np.uint8), np.array([0, 1, 1]), {"checked": np.array(["cat", "dog", "1"])})
    assert true_labels(part, "checked", ("cat", "dog")).tolist() == [0, 1, 1]
    assert true_labels(part, None, ("cat", "dog")).tolist() == [0, 1, 1]
    with pytest.raises(DataError, match=r"'dog' in column 'checked' is not a class.*one of cat, cow"):
        true_labels(part, "checked", ("cat", "cow"))
    with pytest.raises(DataError, match="no column 'true'; there are: checked"):
        true_labels(part, "true", ("cat", "dog"))


def test_a_column_of_true_labels_is_no_feature_of_a_table(tmp_path: Path):
    from fedpca.data.datasets import load
    from fedpca.errors import DataError
    from fedpca.settings.experiment import DataSettings

    rows = [f"{row},{row % 2},{row % 2},{'ab'[row % 4 // 2]}" for row in range(40)]
    table = tmp_path / "rows.csv"
    table.write_text("\n".join(["age,label,checked,hospital", *rows, ""]))
    own = {"dataset": str(table), "split": "column", "column": "hospital", "truth_column": "checked"}
    assert "checked" in load(DataSettings(**own)).train.columns
    with pytest.raises(DataError, match="'checked' holds the labels"):
        load(DataSettings(**own, feature_columns=("age", "checked")))
