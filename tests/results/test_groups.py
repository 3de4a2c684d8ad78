"""Test groups in results: images, intervals, suspect test labels, groups that are too small to count."""

import csv
import io
import json

import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from fedpca.cli.main import app
from fedpca.results.read.groups import group_scores, wilson
from fedpca.results.read.runs import find_runs, read_run
from fedpca.results.tables import (
    as_csv,
    as_json,
    as_latex,
    as_markdown,
    as_rich,
    for_pages,
    for_terminal,
    groups_as_csv,
    tabulate,
)
from fedpca.results.tables.groups import group_sheet, listed_groups
from tests.results.made import a_line, write_run

HOSPITALS = ("Berlin", "Bonn", "Köln", "Ulm")
JUDGED = ("common", "common", "common", "mislabeled")
SCORES = {"Berlin": 0.9, "Bonn": 0.8, "Köln": 0.85, "Ulm": 0.4}
IMAGES = {"Berlin": 100, "Bonn": 50, "Köln": 200, "Ulm": 40}


def line(number=1, scores=SCORES, groups=JUDGED):
    tested = {name: {"acc": score, "bacc": score, "auc": 0.9, "auc_ovo": 0.9} for name, score in scores.items()}
    return {**a_line(number, clients=HOSPITALS, groups=groups), "groups": tested}


def hospitals(folder, truth=None, about=None, method="fedpca-d", seed=0, **changes):
    """A run of four hospitals, of which Ulm is judged mislabeled; nobody knows the truth."""
    path = write_run(folder, [line(**changes)], clients=HOSPITALS, truth=truth or {}, method=method, seed=seed)
    known = json.loads((path / "about.json").read_text())
    counts = {name: [count - 5, 5] for name, count in IMAGES.items()}
    known |= {"classes": ["no", "yes"], "test_images": IMAGES, "test_classes": counts, **(about or {})}
    (path / "about.json").write_text(json.dumps(known))
    return path


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (5, 10), (10, 10), (83, 100), (399, 400)])
def test_the_interval_is_wilsons(hits, count):
    reference = binomtest(hits, count).proportion_ci(0.95, method="wilson")
    assert wilson(hits / count, count) == pytest.approx((reference.low, reference.high), abs=1e-6)


def test_each_group_has_its_images_classes_and_interval(tmp_path):
    scores = group_scores([read_run(hospitals(tmp_path / "run"))])
    bonn = next(group for group in scores.groups if group.group == "Bonn")
    assert (bonn.images, bonn.classes, bonn.score) == (50, (45, 5), 80)
    reference = binomtest(40, 50).proportion_ci(0.95, method="wilson")
    assert (bonn.low, bonn.high) == pytest.approx((100 * reference.low, 100 * reference.high), abs=1e-4)


def test_test_labels_of_a_client_judged_mislabeled_are_suspect(tmp_path):
    scores = group_scores([read_run(hospitals(tmp_path / "run"))])
    assert [group.group for group in scores.groups if group.suspect] == ["Ulm"]
    assert (scores.worst, scores.average) == pytest.approx((40, 73.75))
    assert (scores.worst_without, scores.average_without) == pytest.approx((80, 85))


def test_where_the_truth_is_known_test_labels_are_true(tmp_path):
    scores = group_scores([read_run(hospitals(tmp_path / "run", truth={"rare": [], "mislabeled": ["Ulm"]}))])
    assert not any(group.suspect for group in scores.groups)
    assert scores.worst_without is None


def test_if_all_groups_are_suspect_nothing_is_left_to_show_without_them(tmp_path):
    scores = group_scores([read_run(hospitals(tmp_path / "run", groups=("mislabeled",) * 4))])
    assert all(group.suspect for group in scores.groups)
    assert scores.average_without is None


def test_metrics_other_than_accuracy_have_no_interval(tmp_path):
    path = hospitals(tmp_path / "run")
    settings = (path / "settings.toml").read_text()
    assert 'accuracy = "acc"' in settings
    (path / "settings.toml").write_text(settings.replace('accuracy = "acc"', 'accuracy = "bacc"'))
    assert {group.low for group in group_scores([read_run(path)]).groups} == {None}


def test_the_table_of_test_groups(tmp_path):
    hospitals(tmp_path / "run", about={"uncounted_groups": {"Jena": "3 images, fewer than 10"}})
    (results,) = tabulate(find_runs([tmp_path]))
    text = as_markdown(for_pages([results]))
    assert "| images | of each class | ACC | 95 % interval |" in text
    assert "| `Bonn` | 50 | no: 45, yes: 5 | 80.00 | 67.0 to 88.8 |" in text
    assert "fedpca-d" in text
    assert "judges Ulm mislabeled: test labels there are suspect." in text
    assert "Without: worst ACC 80.00, average 85.00; with: 40.00 and 73.75." in text
    assert "Too small to count, and so not in worst and average: Jena (3 images, fewer than 10)." in text
    assert "Ulm (suspect)" in as_latex(for_pages([results]))
    assert as_rich(group_sheet(results), 80)


def test_of_many_classes_the_smallest_is_named(tmp_path):
    counts = {name: [count - 18, 6, 5, 4, 3] for name, count in IMAGES.items()}
    hospitals(tmp_path / "run", about={"classes": list("abcde"), "test_classes": counts})
    text = as_markdown(for_pages(tabulate(find_runs([tmp_path]))))
    assert "| images | smallest class | ACC |" in text
    assert "| `Bonn` | 50 | e: 3 | 80.00 |" in text


def exported(folder):
    return list(csv.DictReader(io.StringIO(groups_as_csv(tabulate(find_runs([folder]))))))


def test_the_csv_of_groups_has_a_line_for_each_method_and_group(tmp_path):
    hospitals(tmp_path / "judging", about={"uncounted_groups": {"Jena": "3 images, fewer than 10"}})
    hospitals(tmp_path / "plain", method="fedavg", groups=None)
    lines = exported(tmp_path)
    assert [line["group"] for line in lines if line["method"] == "fedavg"] == [*HOSPITALS, "Jena"]
    berlin, bonn, _, ulm, jena = (line for line in lines if line["method"] != "fedavg")
    reference = binomtest(40, 50).proportion_ci(0.95, method="wilson")
    assert [float(bonn[name]) for name in ("score", "low", "high")] == pytest.approx(
        [80, 100 * reference.low, 100 * reference.high], abs=1e-4
    )
    assert (bonn["metric"], bonn["images"], bonn["images_of_no"], bonn["images_of_yes"]) == ("acc", "50", "45", "5")
    assert (ulm["is_worst"], ulm["is_suspect"]) == ("True", "True")
    assert (berlin["is_worst"], berlin["is_suspect"]) == ("False", "False")
    assert (jena["not_counted"], jena["score"], jena["is_suspect"]) == ("3 images, fewer than 10", "", "")


def test_one_group_is_neither_worst_nor_best(tmp_path):
    hospitals(tmp_path / "run", scores={"Bonn": 0.8}, groups=("common",) * 4)
    (line,) = exported(tmp_path)
    assert line["is_worst"] == "False"


def test_the_main_csv_has_scores_without_suspect_groups_where_there_are_any(tmp_path):
    hospitals(tmp_path / "known", truth={"rare": [], "mislabeled": ["Ulm"]})
    assert "suspect" not in as_csv(tabulate(find_runs([tmp_path])))
    hospitals(tmp_path / "judging", seed=1)
    hospitals(tmp_path / "plain", method="fedavg", groups=None, seed=1)
    tables = tabulate(find_runs([tmp_path / "judging", tmp_path / "plain"]))
    plain, judging = csv.DictReader(io.StringIO(as_csv(tables)))
    assert judging["suspect_groups"] == "Ulm"
    without = [float(judging[f"{name}_without_suspect"]) for name in ("worst", "average")]
    assert without == pytest.approx([80, 85])
    assert (plain["suspect_groups"], plain["worst_without_suspect"]) == ("", "")


def test_the_command_writes_the_csv_of_groups(tmp_path):
    hospitals(tmp_path / "runs/run")
    done = CliRunner().invoke(app, ["results", str(tmp_path / "runs"), "--groups", str(tmp_path / "groups.csv")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "groups.csv").read_text() == groups_as_csv(tabulate(find_runs([tmp_path / "runs"])))


def test_json_has_it_too(tmp_path):
    hospitals(tmp_path / "run", about={"uncounted_groups": {"Jena": "3 images, fewer than 10"}})
    (table,) = as_json(tabulate(find_runs([tmp_path])))
    assert table["uncounted_groups"] == {"Jena": "3 images, fewer than 10"}
    assert table["classes"] == ("no", "yes")
    (row,) = table["rows"]
    assert row["test_groups"]["worst_without"] == pytest.approx(80)
    assert row["test_groups"]["worst_group"] == "Ulm"
    assert row["test_groups"]["worst_group_without"] == "Bonn"
    assert [group["images"] for group in row["test_groups"]["groups"]] == list(IMAGES.values())


def test_common_and_rare_need_no_table_of_their_own(tmp_path):
    write_run(tmp_path / "run", [a_line(1)])
    tables = tabulate(find_runs([tmp_path]))
    assert not any("Test groups" in sheet.title for sheet in (*for_terminal(tables), *for_pages(tables)))
    assert "test groups: common and rare" in as_markdown(for_pages(tables))


def test_a_terminal_is_not_flooded(tmp_path):
    hospitals(tmp_path / "run")
    (results,) = tabulate(find_runs([tmp_path]))
    short = group_sheet(results, max_lines=3)
    assert short.lines == ()
    assert "4 scores: --groups, --markdown and --json have them." in short.notes
    assert len(group_sheet(results).lines) == 4


def test_many_groups_are_counted_and_few_are_named():
    assert listed_groups(["common"]) == "common"
    assert listed_groups(["a", "b", "c"]) == "a, b and c"
    assert listed_groups([str(number) for number in range(20)]) == "20 of them"
