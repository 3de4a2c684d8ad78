"""Everything shows the metric that `evaluation.accuracy` chose, under its own name."""

import csv
import io
import json
from pathlib import Path

import pytest

from fedpca.results.figures.accuracy import draw_accuracy
from fedpca.results.figures.q import FIGURE as Q
from fedpca.results.figures.tradeoff import draw_tradeoff
from fedpca.results.page.data import columns, run_data
from fedpca.results.page.page import write_page
from fedpca.results.page.summary import comparison, notes
from fedpca.results.read.runs import Run, find_runs
from fedpca.results.tables import as_csv, as_json, for_pages, for_terminal, tabulate
from tests.results.made import a_line, write_run

OUTSIDE = "somewhere:macro_f1"  # of a package that is not installed here
SCORES = {
    "acc": {"common": 0.90, "rare": 0.24},
    "bacc": {"common": 0.85, "rare": 0.2532},
    "auc": {"common": 0.95, "rare": 0.70},
    "auc_ovo": {"common": 0.96, "rare": 0.71},
    OUTSIDE: {"common": 0.77, "rare": 0.33},
}


def runs_with(folder: Path, accuracy: str) -> list[Run]:
    """Two methods of which the worst group has 24 % accuracy, 25.32 % balanced accuracy, and 33 % of another metric."""
    groups = {group: {name: values[group] for name, values in SCORES.items()} for group in ("common", "rare")}
    for method in ("fedavg", "fedpca-d"):
        line = a_line(1, groups=None if method == "fedavg" else ("common", "common", "rare", "mislabeled"))
        choose(accuracy, write_run(folder / method, [line | {"groups": groups}], method=method))
    return find_runs([folder])


def choose(accuracy: str, run: Path) -> None:
    """Changes a run folder's settings, since those of a run with an unknown metric could not be made."""
    settings = run / "settings.toml"
    settings.write_text(settings.read_text().replace('accuracy = "acc"', f'accuracy = "{accuracy}"'))


CHOSEN = [("acc", "accuracy", "ACC"), ("bacc", "balanced accuracy", "balanced ACC"), (OUTSIDE, "macro_f1", "macro_f1")]


@pytest.fixture(params=CHOSEN, ids=["acc", "bacc", "outside"])
def chosen(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    return request.param


def percent(metric: str, group: str) -> float:
    return 100 * SCORES[metric][group]


def test_in_the_terminal_and_in_pages(tmp_path: Path, chosen: tuple[str, str, str]):
    metric, _, head = chosen
    tables = tabulate(runs_with(tmp_path, metric))
    overview, main = for_terminal(tables)[0], for_pages(tables)[0]
    for sheet in (overview, main):
        heads = [column.head for column in sheet.columns]
        assert heads[:2] == [f"worst {head}", f"average {head}"]
        assert "worst AUC" in heads
        assert [line.cells[0].mean for line in sheet.lines] == pytest.approx([percent(metric, "rare")] * 2)
        others = {f"worst {name}" for _, _, name in CHOSEN} - {f"worst {head}"}
        assert not others & set(heads)


def test_in_sentences(tmp_path: Path, chosen: tuple[str, str, str]):
    metric, words, _ = chosen
    runs = runs_with(tmp_path, metric)
    (table,) = tabulate(runs)
    (note, *_) = comparison(table, runs)
    assert note.head == f"{words[0].upper()}{words[1:]} of the worst test group"
    assert f"with {percent(metric, 'rare'):.2f} ± 0.00 %" in note.text
    said = {note.head: note.text for note in notes(runs[0], seeds=1)}["Rare and common"]
    assert f"the {words} is {percent(metric, 'common'):g} % on the common test images" in said


def test_on_the_page(tmp_path: Path, chosen: tuple[str, str, str]):
    metric, words, head = chosen
    runs = runs_with(tmp_path, metric)
    page = write_page(runs)
    assert page.count(f"{percent(metric, 'rare'):.2f}&nbsp;±&nbsp;0.00&nbsp;%") == 1  # the sentence
    assert page.count(f"{percent(metric, 'rare'):.2f} ± 0.00") == 2  # the table
    assert f">worst {head}<" in page
    drawn = columns(runs[0], 0)
    assert drawn["worst"] == [pytest.approx(percent(metric, "rare"), abs=0.005)]
    assert drawn["average"] == [pytest.approx((percent(metric, "rare") + percent(metric, "common")) / 2, abs=0.005)]
    assert run_data(runs[0], 0)["metric"] == words


def test_in_figures(tmp_path: Path, chosen: tuple[str, str, str]):
    metric, words, _ = chosen
    runs = runs_with(tmp_path, metric)
    worst, average = draw_accuracy(runs).axes[:2]
    assert [axes.get_ylabel() for axes in (worst, average)] == [f"worst {words} (%)", f"average {words} (%)"]
    assert worst.lines[0].get_ydata() == pytest.approx([percent(metric, "rare")])
    (plane,) = draw_tradeoff(runs).axes
    assert (plane.get_xlabel(), plane.get_ylabel()) == (f"common {words} (%)", f"rare {words} (%)")
    (point, *_) = [line for line in plane.lines if line.get_marker() not in ("None", None, "")]
    assert (*point.get_xdata(), *point.get_ydata()) == pytest.approx(
        (percent(metric, "common"), percent(metric, "rare"))
    )


def test_in_figures_of_settings(tmp_path: Path, chosen: tuple[str, str, str]):
    metric, words, _ = chosen
    groups = {group: {name: values[group] for name, values in SCORES.items()} for group in ("common", "rare")}
    for q in (1.0, 2.0):
        line = a_line(1, groups=None) | {"groups": groups}
        choose(metric, write_run(tmp_path / str(q), [line], method="qfedavg", of_method={"q": q}))
    worst = Q.draw(find_runs([tmp_path])).axes[0]
    assert worst.get_ylabel() == f"worst {words} (%)"
    assert worst.lines[0].get_ydata() == pytest.approx([percent(metric, "rare")] * 2)


def test_every_recorded_metric_is_in_files_for_scripts(tmp_path: Path):
    tables = tabulate(runs_with(tmp_path, "bacc"))
    header, first, _ = csv.reader(io.StringIO(as_csv(tables)))
    names = [f"{kind}_{metric}" for metric in ("acc", "bacc", "auc", OUTSIDE) for kind in ("worst", "average", "std")]
    both = [column for name in names for column in (name, f"{name}_spread")]
    assert header[6 : 6 + len(both)] == both
    assert float(first[header.index(f"worst_{OUTSIDE}")]) == pytest.approx(33)
    (row, _) = json.loads(json.dumps(as_json(tables)))[0]["rows"]
    assert list(row) == [
        *("method", "name", "category", "acc", "bacc", "auc", OUTSIDE),
        *("weight", "found", "seeds", "unfinished", "replanned", "test_groups"),
    ]
    assert row[OUTSIDE]["worst"]["mean"] == pytest.approx(33)
