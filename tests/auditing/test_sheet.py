"""A site's own sheet, in words and in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpca.auditing.pages import sheet_html
from fedpca.auditing.pages.sheet import MAX_SHOWN
from tests.auditing.made import a_png, a_site, suspect_rows
from tests.auditing.shown import EVIL, every, fits, text_of
from tests.results.conftest import requests, show

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ROWS = suspect_rows(120, 71, 30)
THUMBNAILS = {row["row"]: a_png(row["row"], 24) for row in ROWS[:70]}
TABLE = [{**row, "path": "", "age": 40 + i, "cholesterol": 200 + i} for i, row in enumerate(suspect_rows())]


@pytest.fixture
def sheet(browser: Chrome, tmp_path: Path) -> Chrome:
    show(browser, tmp_path, sheet_html(a_site(), ROWS, THUMBNAILS))
    return browser


def test_the_images_stand_worst_first_and_are_bounded(sheet: Chrome):
    cards = every(sheet, ".cards li")
    assert len(cards) == MAX_SHOWN
    assert cards[0].splitlines()[0] == ROWS[0]["given_label"]
    assert cards[0].splitlines()[1] == f"→ {ROWS[0]['predicted_label']}"
    assert "score 0.01, p-value 0.0005" in cards[0]
    assert sheet.execute_script("return [...document.images].slice(0, 9).every((i) => i.naturalWidth === 24)")
    assert "71 labels to look at" in text_of(sheet, "#list")
    assert "about 10 % of them, that is up to 7, may be right after all" in text_of(sheet, "#list")
    assert "Shown are the first 60; suspects.csv has all." in text_of(sheet, "#list")


def test_it_says_what_was_found_and_what_to_do(sheet: Chrome):
    assert "about 31 %, at least 53 and at most 86 of its 220 labels" in text_of(sheet, "#found")
    assert "fedpca audit review . --page" in text_of(sheet, "#next")
    assert "Benjamini and Hochberg" in text_of(sheet, "#made")


@pytest.mark.parametrize("width", [1200, 390, 360])
def test_it_fits_at_any_width(sheet: Chrome, width: int):
    fits(sheet, width)


def test_nothing_is_asked_of_any_network(sheet: Chrome):
    sheet.get_log("performance")
    sheet.refresh()
    assert {address for address in requests(sheet) if not address.startswith(("file://", "data:"))} == set()


def test_rows_without_images_show_their_columns(browser: Chrome, tmp_path: Path):
    show(browser, tmp_path, sheet_html(a_site(), TABLE, {}))
    heads = ["row", "given → likely", "score", "p-value", "age", "cholesterol"]
    assert every(browser, "#list thead th") == heads
    assert every(browser, "#list tbody tr:first-child td")[-2:] == ["40", "200"]
    fits(browser, 360)


def test_names_from_data_stay_text(browser: Chrome, tmp_path: Path):
    rows = [{**row, "path": name, "given_label": name, "predicted_label": name} for row, name in zip(ROWS, EVIL)]  # noqa: B905
    show(browser, tmp_path, sheet_html(a_site(client=EVIL[1], name=EVIL[0]), rows, THUMBNAILS))
    assert every(browser, ".given") == EVIL
    assert len(browser.find_elements("css selector", "img")) == len(EVIL)
    assert len(browser.find_elements("css selector", "script")) == 1


def test_what_cannot_be_told_stands_first():
    html = sheet_html(a_site("oslo"), [{**row, "is_label_issue": False} for row in ROWS], {})
    assert html.index("What could not be tested") < html.index("What was found")
    assert "That is no accusation." in html
    assert "The list is empty" in html
