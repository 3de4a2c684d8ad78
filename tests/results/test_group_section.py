"""Test groups on the page: bars with intervals, what is worst and what is suspect, also on a phone and on paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpca.results.page import write_page
from fedpca.results.page.page import parts
from fedpca.results.read.groups import group_scores
from fedpca.results.read.runs import Run, read_run
from tests.results.conftest import look, show
from tests.results.made import a_line, write_run
from tests.results.test_browser import EVIL, choose, css, every, until
from tests.results.test_groups import HOSPITALS, SCORES, hospitals

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def one_group(folder: Path) -> Run:
    return read_run(hospitals(folder, scores={"Bonn": 0.8}, groups=("common",) * 4))


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Chrome:
    """Two runs on four hospitals: fedpca-d judges Ulm mislabeled, fedavg judges nobody."""
    small = {"uncounted_groups": {"Jena": "3 images, fewer than 10"}}
    runs = [
        read_run(hospitals(tmp_path / "a", about=small)),
        read_run(hospitals(tmp_path / "b", method="fedavg", groups=None)),
    ]
    show(browser, tmp_path, write_page(runs))
    choose(browser, "fedpca-d (warmup=0)")
    return browser


def rows(browser: Chrome) -> list[list[str]]:
    shown = [row for row in every(browser, "#groups tbody tr") if row.is_displayed()]
    return [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in shown]


def test_each_group_has_score_interval_images_and_classes_worst_first(page: Chrome):
    found = rows(page)
    assert [row[0] for row in found] == ["Ulm worst suspect", "Bonn", "Köln", "Berlin"]
    assert found[1][1:] == ["80.0", "67.0–88.8", "50", "no: 45, yes: 5"]
    heads = [cell.text for cell in every(page, "#groups thead th") if cell.is_displayed()]
    assert heads == ["test group", "ACC", "95 % interval", "images", "of each class"]


def test_bars_and_lines_stand_where_the_numbers_are(page: Chrome):
    scores = {group.group: group for group in group_scores([read_run(Path(page_folder(page)) / "a")]).groups}
    bar = next(row for row in every(page, "#groups tbody tr") if row.text.startswith("Bonn"))
    fill = bar.find_element("css selector", ".fill")
    assert float(fill.get_attribute("width")) == pytest.approx(80)
    assert fill.get_attribute("data-kind") == "-"
    low, high = scores["Bonn"].low, scores["Bonn"].high
    assert bar.find_element("css selector", ".interval").get_attribute("d").endswith(f"M{low:.1f},7H{high:.1f}")
    assert bar.find_element("css selector", ".average").get_attribute("d").startswith("M73.8,")
    assert css(page, "#groups .fill[data-kind=m]").get_attribute("width") == "40.0", "Ulm, judged mislabeled"


def page_folder(browser: Chrome) -> str:
    return browser.current_url.removeprefix("file://").rpartition("/")[0]


def test_worst_and_average_with_and_without_those_whose_labels_are_suspect(page: Chrome):
    text = css(page, "#groups").text.replace("\u00a0", " ")
    assert "Of 4 groups: worst 40.0 % (Ulm), average 73.8 %." in text
    assert "Without Ulm, whose test labels are suspect: worst 80.0 % (Bonn), average 85.0 %." in text
    assert "judges this client mislabeled, and nobody knows which test labels are right." in text
    assert "Too small to count, and so not in worst and average: Jena (3 images, fewer than 10)." in text


def test_the_section_is_of_the_run_that_is_chosen(page: Chrome):
    choose(page, "fedavg")
    text = css(page, "#groups").text
    assert "fedavg, seed 0" in text
    assert "suspect" not in text.lower()
    assert rows(page)[0][0] == "Ulm worst"


def test_one_group_is_not_compared_with_itself(browser: Chrome, tmp_path: Path):
    show(browser, tmp_path, write_page([one_group(tmp_path / "run")]))
    assert rows(browser) == [["Bonn", "80.0", "67.0–88.8", "50", "no: 45, yes: 5"]]
    text = css(browser, "#groups").text.lower()
    assert "worst" not in text
    assert "average" not in text
    assert every(browser, "#groups .average") == []


def test_without_numbers_of_images_a_lone_group_says_nothing_new(browser: Chrome, tmp_path: Path):
    line = a_line(1)
    line["groups"] = {"all": line["groups"]["common"]}
    runs = [read_run(write_run(tmp_path / "a", [line]))]
    show(browser, tmp_path, write_page(runs))
    assert not css(browser, "#served").is_displayed()


def test_columns_without_a_value_are_left_out(browser: Chrome, tmp_path: Path):
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", [a_line(1)]))]))
    assert [cell.text for cell in every(browser, "#groups thead th")] == ["test group", "ACC"]
    assert [row[0] for row in rows(browser)] == ["rare worst", "common"]
    assert "interval" not in css(browser, "#groups").text


def test_before_any_round_is_tested_there_is_no_section(browser: Chrome, tmp_path: Path):
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", [a_line(1, tested=False)]))]))
    assert not css(browser, "#served").is_displayed()


def test_on_a_phone_name_bar_score_and_interval_are_visible_without_scrolling(page: Chrome):
    look(page, 390, 844)
    until(lambda: page.execute_script("return innerWidth") == 390)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    for number in (1, 2, 3):
        cell = css(page, f"#groups > :not([hidden]) tbody tr > :nth-child({number})")
        box = page.execute_script("return arguments[0].getBoundingClientRect().toJSON()", cell)
        assert 0 < box["left"] < box["right"] <= 390, number


def test_paper_has_every_group_and_nothing_beyond_its_edge(browser: Chrome, tmp_path: Path):
    names = [f"hospital {i}" for i in range(40)]
    line = a_line(1, names, ["common"] * 40)
    line["groups"] = {name: {"acc": 0.5 + i / 100, "auc": 0.9} for i, name in enumerate(names)}
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", [line], names, truth={}))]))
    framed = "const e = document.querySelector('#groups .scroll'); return e.scrollHeight > e.clientHeight"
    assert browser.execute_script(framed), "on a screen, many groups scroll in a frame"
    look(browser, 688, 1000, media="print")
    assert not browser.execute_script(framed)
    assert len(rows(browser)) == 40
    assert browser.execute_script("return document.querySelector('#groups table').getBoundingClientRect().right") <= 689


def test_evil_names_of_groups_stay_text(browser: Chrome, tmp_path: Path):
    line = a_line(1, EVIL)
    line["groups"] = dict(zip(EVIL, ({"acc": value, "auc": 0.9} for value in SCORES.values()), strict=True))
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", [line], EVIL, truth={}))]))
    assert {row[0].removesuffix(" worst suspect") for row in rows(browser)} == set(EVIL)
    assert every(browser, "img, b") == []


def test_all_suspect_leaves_none_to_show_without(tmp_path: Path):
    run = read_run(hospitals(tmp_path / "run", groups=("mislabeled",) * 4))
    said = parts([run])["groups"]
    assert f"The test labels of {', '.join(HOSPITALS[:3])} and Ulm are suspect, and no other group is tested." in said
    assert "Without" not in said


def test_a_page_that_is_live_gets_the_groups_anew(tmp_path: Path):
    path = hospitals(tmp_path / "run")
    before = parts([read_run(path)])["groups"]
    assert "40.0" in before
    (path / "rounds.jsonl").write_text((path / "rounds.jsonl").read_text().replace("0.4,", "0.45,"))
    assert "45.0" in parts([read_run(path)])["groups"]
