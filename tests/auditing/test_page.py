"""The coordinator's page, in words and in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpca.auditing.pages import page_html
from tests.auditing.made import an_audit, an_entry
from tests.auditing.shown import EVIL, every, fits, text_of
from tests.results.conftest import look, requests, show

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Chrome:
    show(browser, tmp_path, page_html(an_audit()))
    return browser


def test_what_could_not_be_tested_stands_first(page: Chrome):
    assert every(page, "h2")[0] == "What could not be tested"
    said = every(page, "#untested li")
    assert said[0].startswith("All: errors that most clients share.")
    assert said[1] == "Client oslo: the share of wrong labels. It has 31 labels; 50 are needed."
    assert said[2].startswith("Client tartu: whether labels are wrong."), "who has no answer is never left out"


def test_the_summary_names_who_how_many_and_how_sure(page: Chrome):
    found = text_of(page, "#found")
    assert "3 of the 20 clients are judged mislabeled: lyon, bonn and graz." in found
    assert "bonn about 31 %, at least 53 and at most 86 of its 220 labels" in found
    assert "Of oslo and tartu it cannot be told, which is no accusation." in found
    assert "The 15 reference clients vary among themselves by 2.1 points" in found
    assert "errors that most clients share are invisible" in found


def test_each_client_has_a_row_with_verdict_bar_and_interval(page: Chrome):
    rows = every(page, "#clients tbody tr")
    assert len(rows) == 20
    assert [row.split()[0] for row in rows[:5]] == ["lyon", "bonn", "graz", "oslo", "tartu"]
    assert "24 % to 39 %" in rows[1]
    assert "none: too few labels" in rows[3]
    shapes = {mark.get_attribute("innerHTML") for mark in page.find_elements("css selector", ".mark-of svg")}
    assert len(shapes) == 3, "verdicts differ without colours"
    box = "document.querySelectorAll('#clients tbody tr')[1].querySelector(arguments[0]).getBBox()"
    assert page.execute_script(f"return {box}.width", ".fill") == pytest.approx(62)  # 0.31 of a scale up to 0.5
    assert page.execute_script(f"const b = {box}; return [b.x, b.x + b.width]", ".interval") == pytest.approx([48, 78])


def test_confusions_are_shown_where_they_are_told(page: Chrome):
    assert "nevus → melanoma\n52 (20 %)" in text_of(page, "#confusions .pairs")
    assert "Client turin told nothing about classes." in text_of(page, "#confusions")


@pytest.mark.parametrize("width", [1200, 390, 360])
def test_fifty_clients_fit_at_any_width(browser: Chrome, tmp_path: Path, width: int):
    show(browser, tmp_path, page_html(an_audit([*an_audit_names(), "bonn", "oslo"])))
    assert len(every(browser, "#clients tbody tr")) == 50
    fits(browser, width)


def an_audit_names() -> list[str]:
    return [f"university hospital number {i}" for i in range(48)]


def test_names_from_data_stay_text(browser: Chrome, tmp_path: Path):
    audit = an_audit([*EVIL, "bonn"], name=EVIL[1], not_tested=[{"client": n, "what": n, "why": n} for n in EVIL])
    pair = {"given": EVIL[0], "likely": EVIL[3], "images": 5, "share": 0.02}
    audit["clients"] = [{**client, "reason": EVIL[1], "confused": [pair]} for client in audit["clients"]]
    show(browser, tmp_path, page_html(audit))
    assert set(EVIL) < set(every(browser, "#clients tbody th"))
    assert browser.find_elements("css selector", "main img, main script") == []
    assert len(browser.find_elements("css selector", "script")) == 1
    fits(browser, 360)


def test_nothing_is_asked_of_any_network(page: Chrome):
    page.get_log("performance")
    page.refresh()
    assert {address for address in requests(page) if not address.startswith(("file://", "data:"))} == set()


def test_paper_and_dark_colours(page: Chrome):
    page.find_element("id", "theme").click()
    assert page.execute_script("return document.documentElement.dataset.theme") == "dark"
    look(page, 750, 1000, media="print")
    assert not page.find_element("id", "theme").is_displayed()
    too_wide = "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 751)"
    assert page.execute_script(f"return {too_wide}.map((e) => e.tagName)") == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["porto", "cork"], "None of the 2 clients is judged mislabeled."),
        (["porto", "oslo"], "None of the 2 clients is judged mislabeled. Of some it cannot be told."),
        (["oslo"], "It cannot be told of any of the 1 client whether its labels are wrong."),
        (["bonn"], "1 of the 1 client is judged mislabeled: bonn."),
    ],
)
def test_other_outcomes_have_their_sentence(names: list[str], said: str):
    assert said in page_html(an_audit(names, reference=None))


def test_a_share_without_an_interval_says_why():
    entry = {**an_entry("bonn"), "low": None, "high": None, "why_no_interval": "too few reference clients"}
    page = page_html(an_audit(clients=[entry], not_tested=[]))
    assert "none: too few reference clients" in page
    assert "about 31&nbsp;%, too few reference clients" in page
    assert "Everything that an audit can test was tested" in page
