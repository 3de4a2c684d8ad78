"""Reading labels again: in a real browser, and against those who have no business there."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from fedpca.auditing.pages.review_page import Review, in_order
from fedpca.auditing.pages.server import MAX_BODY, reviewing
from fedpca.auditing.suspects import read_suspects
from fedpca.errors import DataError, RunError
from tests.auditing.made import CLASSES, suspect_rows, write_site
from tests.auditing.shown import EVIL, every, fits, text_of, until
from tests.results.conftest import requests

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

MANY = [*CLASSES, *(f"class {i}" for i in range(20))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_site(tmp_path / "bonn")


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with reviewing(folder) as address:
        yield address


@contextmanager
def left_before_it_stops(browser: Chrome, folder: Path) -> Iterator[str]:
    """The page's address; the browser goes elsewhere before the server stops, so that it asks nobody in vain."""
    with reviewing(folder) as address:
        try:
            yield address
        finally:
            browser.get("about:blank")


@pytest.fixture
def page(browser: Chrome, folder: Path) -> Iterator[str]:
    with left_before_it_stops(browser, folder) as address:
        yield address


def cells(folder: Path) -> dict[int, dict[str, str]]:
    with (folder / "suspects.csv").open(newline="") as file:
        return {int(row["row"]): row for row in csv.DictReader(file)}


def order(folder: Path) -> list[int]:
    return [own.row for own in in_order(read_suspects(folder / "suspects.csv"))]


def press(browser: Chrome, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def opened(browser: Chrome, address: str) -> None:
    browser.get(address)
    until(lambda: browser.find_element("id", "item").is_displayed())


def shown_row(browser: Chrome) -> int:
    return int(text_of(browser, "#path").rpartition("row ")[2].strip(")"))


def decide(browser: Chrome, folder: Path, row: int, key: str, label: str) -> None:
    """Presses a key at this row, and waits until the next one is shown."""
    until(lambda: shown_row(browser) == row)
    press(browser, key)
    until(lambda: cells(folder)[row]["reviewed_label"] == label)


def test_keys_decide_and_nothing_else_changes(browser: Chrome, folder: Path, page: str):
    from selenium.webdriver.common.keys import Keys

    before, rows = cells(folder), order(folder)
    opened(browser, page)
    assert text_of(browser, "#where") == "Random sample: 0 of 10 read, 10 left"
    given = [before[row]["given_label"] for row in rows]
    decide(browser, folder, rows[0], Keys.ENTER, given[0])
    other = next(i for i, name in enumerate(CLASSES) if name != given[1])
    decide(browser, folder, rows[1], str(other + 1), CLASSES[other])
    until(lambda: shown_row(browser) == rows[2])
    press(browser, "s")
    until(lambda: shown_row(browser) == rows[3])
    press(browser, "b")
    until(lambda: shown_row(browser) == rows[2])
    press(browser, Keys.ARROW_LEFT)
    until(lambda: shown_row(browser) == rows[1])
    decide(browser, folder, rows[1], "k", given[1])
    assert list(cells(folder)) == list(before), "the order is kept"
    changed = {rows[0]: given[0], rows[1]: given[1]}
    for row, own in cells(folder).items():
        assert own["reviewed_label"] == changed.get(row, "")
        assert {**own, "reviewed_label": ""} == before[row] | {
            name: own[name] for name in ("label_score", "p_value")
        }, "numbers may be rounded, nothing else"
        assert float(own["label_score"]) == pytest.approx(float(before[row]["label_score"]))
    browser.refresh()
    until(lambda: text_of(browser, "#where") == "Random sample: 2 of 10 read, 8 left")
    assert shown_row(browser) == rows[2], "it goes on with the first that is not decided"


def test_the_sample_does_not_lead_the_reader(browser: Chrome, folder: Path, page: str):
    state = json.loads(json.dumps(Review(folder).state()))
    sample = [item for item in state["items"] if item["part"] == "sample"]
    assert len(sample) == 10
    assert all(not {"likely", "score", "p_value", "is_label_issue"} & item.keys() for item in sample)
    by_row = cells(folder)
    scores = [float(by_row[item["row"]]["label_score"]) for item in sample]
    assert scores != sorted(scores), "the worst are not first"
    opened(browser, page)
    assert not browser.find_element("id", "reveal").is_displayed()
    press(browser, "m")
    assert text_of(browser, "#hint") == ""


def test_the_list_follows_worst_first_and_tells_the_model_where_asked(browser: Chrome, folder: Path):
    review = Review(folder)
    sample = [item["row"] for item in review.state()["items"] if item["part"] == "sample"]
    for row in sample:
        review.decide(row, cells(folder)[row]["given_label"])
    with left_before_it_stops(browser, folder) as address:
        opened(browser, address)
        rows = order(folder)[len(sample) :]
        assert shown_row(browser) == rows[0]
        scores = [float(cells(folder)[row]["label_score"]) for row in rows]
        assert scores == sorted(scores)
        assert text_of(browser, "#hint") == ""
        press(browser, "m")
        assert text_of(browser, "#hint").startswith(f"Likely {cells(folder)[rows[0]]['predicted_label']} (score 0.")
        for row in rows:
            until(lambda row=row: shown_row(browser) == row)
            press(browser, "k")
            until(lambda row=row: cells(folder)[row]["reviewed_label"])
        until(lambda: browser.find_element("id", "end").is_displayed())
        assert "Random sample: 10 of 10 read, 0 changed." in text_of(browser, "#sum")


def test_two_tabs_lose_nothing(browser: Chrome, folder: Path, page: str):
    rows = order(folder)
    opened(browser, page)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    opened(browser, page)
    decide(browser, folder, rows[0], "k", cells(folder)[rows[0]]["given_label"])
    decide(browser, folder, rows[1], "k", cells(folder)[rows[1]]["given_label"])
    browser.close()
    browser.switch_to.window(first)
    press(browser, "s")
    until(lambda: shown_row(browser) != rows[0])
    press(browser, "k")
    until(lambda: sum(bool(own["reviewed_label"]) for own in cells(folder).values()) >= 2)
    assert cells(folder)[rows[0]]["reviewed_label"]
    assert cells(folder)[rows[1]]["reviewed_label"]


def test_many_threads_lose_nothing(folder: Path):
    review, rows = Review(folder), order(folder)
    threads = [Thread(target=review.decide, args=(row, CLASSES[0])) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [own["reviewed_label"] for row, own in cells(folder).items() if row in rows] == [CLASSES[0]] * len(rows)


@pytest.mark.parametrize("width", [1200, 390, 360])
def test_it_fits_at_any_width_and_works_by_touch(browser: Chrome, folder: Path, page: str, width: int):
    opened(browser, page)
    row = shown_row(browser)
    fits(browser, width)
    until(lambda: browser.execute_script("return document.querySelector('#image').naturalWidth") == 72)
    small = "[...document.querySelectorAll('#item button')].filter((e) => e.checkVisibility() && e.offsetHeight < 44)"
    assert browser.execute_script(f"return {small}.length") == 0
    browser.find_element("css selector", "#classes button").click()
    until(lambda: cells(folder)[row]["reviewed_label"])
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("button", "image", "progressbar", "progressIndicator")
    assert [n for n in tree if n["role"]["value"] in roles and not n.get("name", {}).get("value")] == []


def test_many_classes_are_typed_and_rows_of_tables_show_their_columns(browser: Chrome, tmp_path: Path):
    from selenium.webdriver.common.keys import Keys

    rows = [{**row, "path": "", "age": 40 + i, "formula": "=1+1"} for i, row in enumerate(suspect_rows())]
    folder = write_site(tmp_path / "table", rows, images=False, classes=MANY)
    with left_before_it_stops(browser, folder) as address:
        opened(browser, address)
        row = shown_row(browser)
        assert every(browser, "#columns dt") == ["age", "formula"]
        fits(browser, 360)
        press(browser, "c", "class 1", Keys.ENTER)
        until(lambda: cells(folder)[row]["reviewed_label"] == "class 1")
        assert cells(folder)[row]["formula"] == "'=1+1"


def test_a_class_that_is_a_digit_has_this_digit_as_its_key(browser: Chrome, tmp_path: Path):
    folder = write_site(tmp_path / "digits", images=False, classes=[str(i) for i in range(10)])
    with left_before_it_stops(browser, folder) as address:
        opened(browser, address)
        assert every(browser, "#classes button") == [f"{i} {i}" for i in range(10)]
        decide(browser, folder, shown_row(browser), "3", "3")


def test_names_from_data_stay_text_and_only_loopback_is_asked(browser: Chrome, tmp_path: Path):
    rows = [{**row, "path": EVIL[0], "given_label": EVIL[i % 2]} for i, row in enumerate(suspect_rows())]
    folder = write_site(tmp_path / "evil", rows, client=EVIL[1], classes=EVIL)
    with left_before_it_stops(browser, folder) as address:
        browser.get_log("performance")
        opened(browser, address)
        assert text_of(browser, "h1") == EVIL[1]
        assert text_of(browser, "#given") in EVIL
        assert len(browser.find_elements("css selector", "img")) == 1
        assert {urlsplit(asked).hostname for asked in requests(browser)} <= {"127.0.0.1", None}


def ask(address: str, path: str = "", method: str = "GET", body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Status and content; the path is below the token unless it begins with a slash."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc, timeout=10)
    own = {"Origin": f"http://{parts.netloc}", "Content-Type": "application/json"} if method == "POST" else {}
    sent = own | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path if path.startswith("/") else parts.path + path, body or None, sent)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_strangers_get_nothing(folder: Path, address: str):
    (folder.parent / "secret.png").write_bytes(b"secret")
    (folder / "images" / "5000.png").symlink_to(folder.parent / "secret.png")
    row = order(folder)[0]
    assert ask(address)[0] == 200
    assert ask(address, f"images/{row}.png")[0] == 200
    for path in ("/", "/wrong-token/", "/wrong-token/state", "/favicon.ico", "images/", "images", "suspects.csv"):
        assert ask(address, path)[0] == 404, path
    for name in ("../secret.png", "..%2fsecret.png", "5000.png", "../site.json", "0.PNG", f"0{row}.png", "9" * 5000):
        assert ask(address, f"images/{name}")[0] in (404, 414), name
    for host in ("evil.example", "127.0.0.1.evil.example", ""):
        assert ask(address, Host=host)[0] == 403, host


def test_only_the_page_itself_can_decide(folder: Path, address: str):
    row = order(folder)[0]
    sound = json.dumps({"row": row, "label": CLASSES[0]}).encode()
    for origin in ("http://evil.example", "null", "https://127.0.0.1:1"):
        assert ask(address, "decide", "POST", sound, Origin=origin)[0] == 403
    assert ask(address, "decide", "POST", sound, Content_Type="text/plain")[0] == 415
    assert ask(address, "decide", "POST", b" " * (MAX_BODY + 1))[0] == 413
    assert ask(address, "decide", "POST", sound, Content_Length="x")[0] == 411
    assert ask(address, "/wrong/decide", "POST", sound)[0] == 404
    for body in (b"[]", b"{", b'{"row": true, "label": "nevus"}', b'{"row": 1}', b"[" * 5000):
        assert ask(address, "decide", "POST", body)[0] == 400, body[:20]
    for wrong in ({"row": -5, "label": CLASSES[0]}, {"row": row, "label": "no class"}):
        assert ask(address, "decide", "POST", json.dumps(wrong).encode())[0] == 409
    assert not any(own["reviewed_label"] for own in cells(folder).values())
    assert ask(address, "decide", "POST", sound)[0] == 200
    assert cells(folder)[row]["reviewed_label"] == CLASSES[0]
    assert address.startswith("http://127.0.0.1:")


def test_what_is_no_site_is_refused(tmp_path: Path, folder: Path):
    with pytest.raises(DataError, match="give the folder of a site"):
        Review(tmp_path)
    (folder / "site.json").write_text("[]")
    with pytest.raises(DataError, match="cannot be read"):
        Review(folder)


def test_a_second_server_is_refused(folder: Path, address: str):
    with pytest.raises(RunError, match="another process reads the labels"), reviewing(folder):
        pass
