"""Test groups in results: images, intervals, suspect test labels, groups that are too small to count."""

import json

import pytest
from scipy.stats import binomtest

from fedpca.results.read.groups import group_scores, wilson
from fedpca.results.read.runs import find_runs, read_run
from fedpca.results.tables import as_json, as_latex, as_markdown, as_rich, for_pages, for_terminal, tabulate
from fedpca.results.tables.groups import group_sheet, listed_groups
from tests.results.made import a_line, write_run

HOSPITALS = ("Berlin", "Bonn", "Köln", "Ulm")
JUDGED = ("common", "common", "common", "mislabeled")
SCORES = {"Berlin": 0.9, "Bonn": 0.8, "Köln": 0.85, "Ulm": 0.4}
IMAGES = {"Berlin": 100, "Bonn": 50, "Köln": 200, "Ulm": 40}


def line(number=1, scores=SCORES, groups=JUDGED):
    tested = {name: {"acc": score, "bacc": score, "auc": 0.9, "auc_ovo": 0.9} for name, score in scores.items()}
    return {**a_line(number, clients=HOSPITALS, groups=groups), "groups": tested}


def hospitals(folder, truth=None, about=None, **changes):
    """A run of four hospitals, of which Ulm is judged mislabeled; nobody knows the truth."""
    path = write_run(folder, [line(**changes)], clients=HOSPITALS, truth=truth or {})
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
    assert "| images | smallest class | ACC | 95 % interval |" in text
    assert "| `Bonn` | 50 | yes: 5 | 80.00 | 67.0 to 88.8 |" in text
    assert "fedpca-d" in text
    assert "judges Ulm mislabeled: test labels there are suspect." in text
    assert "Without: worst ACC 80.00, average 85.00; with: 40.00 and 73.75." in text
    assert "Too small to count, and so not in worst and average: Jena (3 images, fewer than 10)." in text
    assert "Ulm (suspect)" in as_latex(for_pages([results]))
    assert as_rich(group_sheet(results), 80)


def test_json_has_it_too(tmp_path):
    hospitals(tmp_path / "run", about={"uncounted_groups": {"Jena": "3 images, fewer than 10"}})
    (table,) = as_json(tabulate(find_runs([tmp_path])))
    assert table["uncounted_groups"] == {"Jena": "3 images, fewer than 10"}
    (row,) = table["rows"]
    assert row["test_groups"]["worst_without"] == pytest.approx(80)
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
    assert "4 scores: --markdown and --json have them." in short.notes
    assert len(group_sheet(results).lines) == 4


def test_many_groups_are_counted_and_few_are_named():
    assert listed_groups(["common"]) == "common"
    assert listed_groups(["a", "b", "c"]) == "a, b and c"
    assert listed_groups([str(number) for number in range(20)]) == "20 of them"
