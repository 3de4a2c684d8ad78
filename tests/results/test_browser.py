"""The page in a real browser, as people use it: pointer, keyboard, screen reader, phone, printer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpca.results.page import write_page
from fedpca.results.read.runs import Run, read_run
from tests.results.conftest import look, requests, show
from tests.results.made import PLACES, a_line, write_run
from tests.results.test_metric import runs_with

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

ROUNDS = 12
SUSPICIONS = (0.01, 0.02, 0.11, 0.93)
EVIL = ("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "'\"&amp;", "${1}<b>")


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Chrome:
    """Two runs: fedpca-d with its plane, from round 3 on, and fedavg without."""
    lines = [a_line(i, groups=None) for i in (1, 2)]
    lines += [a_line(i, suspicion=SUSPICIONS) for i in range(3, ROUNDS + 1)]
    runs = [
        read_run(write_run(tmp_path / "a", lines, rounds=20)),
        read_run(write_run(tmp_path / "b", [a_line(i, groups=None) for i in (1, 2)], method="fedavg", rounds=20)),
    ]
    show(browser, tmp_path, write_page(runs))
    choose(browser, "fedpca-d (warmup=0)")
    return browser


def css(browser: Chrome, selector: str) -> WebElement:
    return browser.find_element("css selector", selector)


def every(browser: Chrome, selector: str) -> list[WebElement]:
    return browser.find_elements("css selector", selector)


def mark(browser: Chrome, client: int) -> WebElement:
    return css(browser, f'#plane g[data-client="{client}"]')


def places(browser: Chrome) -> list[str]:
    return [element.get_attribute("style") for element in every(browser, "#plane g[data-client]")]


def press(browser: Chrome, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def focused(browser: Chrome) -> str:
    """Name, for a screen reader or an eye, of what has the keyboard."""
    return browser.execute_script(
        "const e = document.activeElement;"
        "return e.getAttribute('aria-label') || e.closest('label')?.textContent.trim().split(/\\s{2,}/)[0]"
        " || e.id || e.textContent.trim();"
    )


def choose(browser: Chrome, method: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(css(browser, "#method")).select_by_visible_text(method)


def until(true: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def test_the_slider_moves_the_marks_between_fixed_axes(page: Chrome):
    from selenium.webdriver.common.keys import Keys

    before = places(page)
    axes = css(page, "#plane .axes").get_attribute("innerHTML")
    assert css(page, "#at").text == "Round 12 of 20: 1 judged mislabeled, 1 rare, 2 common"
    css(page, "#round").send_keys(Keys.ARROW_LEFT)
    assert css(page, "#at").text.startswith("Round 11 of 20:")
    assert css(page, "#round").get_attribute("aria-valuetext") == "Round 11 of 20"
    assert all(old != new for old, new in zip(before, places(page), strict=True))
    assert css(page, "#plane .axes").get_attribute("innerHTML") == axes
    css(page, "#round").send_keys(Keys.HOME)
    assert css(page, "#at").text == "Round 1 of 20"
    assert "In round 1 no client has reported" in css(page, "#plane .note").text
    assert not any(element.is_displayed() for element in every(page, "#plane g[data-client]"))
    css(page, "#round").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert all(element.is_displayed() for element in every(page, "#plane g[data-client]"))
    assert every(page, "#plane g.beyond") == [], "the axes have room for every round"


def test_a_far_outlier_does_not_squeeze_the_others(browser: Chrome, tmp_path: Path):
    from selenium.webdriver.common.keys import Keys

    lines = [a_line(i) for i in range(1, ROUNDS + 1)]
    lines[0]["clients"]["loss"][3] = 1e6
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", lines))]))
    assert mark(browser, 3).location["x"] - mark(browser, 0).location["x"] > 100
    css(browser, "#round").send_keys(Keys.HOME)
    assert "at the edge, since they lie outside: 1 of 4" in css(browser, "#plane .note").text


def test_the_axes_fit_the_round_where_asked(browser: Chrome, tmp_path: Path):
    from selenium.webdriver.common.keys import Keys

    lines = [a_line(i) for i in range(1, ROUNDS + 1)]
    lines[0]["clients"]["loss"][3] = 1e6
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", lines))]))
    button, axes = css(browser, "#fit"), css(browser, "#plane .axes").get_attribute("innerHTML")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert "The axes fit the round shown." in css(browser, "#plane").text
    fitted = css(browser, "#plane .axes").get_attribute("innerHTML")
    assert fitted != axes
    wide = css(browser, "#plane svg").size["width"] - 64  # between the edges
    assert mark(browser, 3).location["x"] - mark(browser, 0).location["x"] > 0.85 * wide
    css(browser, "#round").send_keys(Keys.HOME)
    assert css(browser, "#plane .axes").get_attribute("innerHTML") != fitted
    assert "at the edge" not in css(browser, "#plane .note").text, "nobody is outside"
    css(browser, "#round").send_keys(Keys.END)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert css(browser, "#plane .axes").get_attribute("innerHTML") == axes


def test_kinds_differ_in_shape_and_the_truth_is_an_outline(page: Chrome):
    shapes = {element.get_attribute("d") for element in every(page, "#plane .canvas .mark")}
    assert len(shapes) == 3
    assert len(every(page, "#plane .canvas .truth")) == 4
    css(page, "#truth input").click()
    assert not any(element.is_displayed() for element in every(page, "#plane .canvas .truth"))


def test_play_runs_and_pauses(page: Chrome):
    from selenium.webdriver.common.keys import Keys

    button = css(page, "#play")
    assert button.text == "Play"
    button.click()
    assert button.text == "Pause"
    seen = set()
    until(lambda: seen.add(css(page, "#at").text.split(":")[0]) or len(seen) >= 3)
    button.click()
    assert button.text == "Play"
    stopped = css(page, "#at").text
    time.sleep(1)
    assert css(page, "#at").text == stopped
    button.click()
    css(page, "#round").send_keys(Keys.END, Keys.ARROW_LEFT)
    assert button.text == "Play", "whoever takes the slider has it"
    assert css(page, "#at").text.startswith("Round 11 of 20")
    button.click()
    until(lambda: button.text == "Play")  # it stops by itself at the end
    assert css(page, "#at").text.startswith("Round 12 of 20")


def test_hover_and_focus_show_the_values(page: Chrome):
    from selenium.webdriver.common.action_chains import ActionChains

    tip = css(page, ".tip")
    assert not tip.is_displayed()
    ActionChains(page).move_to_element(mark(page, 3)).perform()
    assert tip.text.split("\n") == [
        "Client d",
        *("loss", "5.200"),
        *("dispersion", "2.000"),
        *("judged", "mislabeled"),
        *("suspicion", "0.93 (judged mislabeled from 0.5 on)"),
        *("weight", "25.00 %"),
        *("truly", "mislabeled"),
    ]
    ActionChains(page).move_to_element(css(page, "h1")).perform()
    assert not tip.is_displayed()
    page.execute_script("arguments[0].focus()", mark(page, 2))
    assert tip.text.startswith("Client c\nloss\n2.200")


def test_the_keyboard_reaches_everything_in_order(page: Chrome):
    from selenium.webdriver.common.keys import Keys

    reachable = "a[href], button, input, select, summary, [tabindex='0']"
    assert page.execute_script("return document.querySelector(arguments[0]).className", reachable) == "skip"
    page.execute_script("document.querySelector('.skip').focus()")
    order = []
    for _ in range(11):
        press(page, Keys.TAB)
        order.append(focused(page))
    assert order[0] == "theme"
    assert order[1].startswith("Method")
    assert order[2].startswith("Seed")
    assert order.index("play") + 1 == order.index("Round")
    here = next(i for i, name in enumerate(order) if name.startswith("Client "))
    assert order[here - 1] == "fit"
    assert order[here - 2].startswith("Outline")
    assert "judged common" in order[here]
    assert not order[here + 1].startswith("Client "), "one stop for all marks"


def test_arrow_keys_go_from_mark_to_mark_and_enter_selects(page: Chrome):
    from selenium.webdriver.common.keys import Keys

    until(lambda: every(page, '#plane g[tabindex="0"]'))
    page.execute_script("document.querySelector('#plane g[tabindex=\"0\"]').focus()")
    names = [focused(page).split(":")[0]]
    for _ in range(3):
        press(page, Keys.ARROW_RIGHT)
        names.append(focused(page).split(":")[0])
    assert names[-2:] == ["Client c", "Client d"], "from left to right"
    assert set(names) == {"Client a", "Client b", "Client c", "Client d"}
    press(page, Keys.ENTER)
    until(lambda: mark(page, 3).get_attribute("aria-pressed") == "true")
    assert css(page, "#plane .trail").get_attribute("d").count("L") == ROUNDS - 3
    assert css(page, ".history").text.startswith(
        "Client d, not judged in rounds 1 to 2, judged mislabeled in rounds 3 to 12."
    )
    assert len(every(page, ".history figure svg")) == 4
    press(page, Keys.HOME)
    assert focused(page).startswith(("Client a", "Client b"))


def test_the_sheet_sorts_and_filters(page: Chrome):
    def names() -> list[str]:
        return [row.text for row in every(page, "#sheet tbody th") if row.is_displayed()]

    assert names() == ["d", "c", "a", "b"], "those judged mislabeled first"
    heads = {cell.text.split()[0]: cell for cell in every(page, "#sheet thead th")}
    heads["Loss"].find_element("tag name", "button").click()
    assert heads["Loss"].get_attribute("aria-sort") == "ascending"
    assert names()[-1] == "d"
    heads["Loss"].find_element("tag name", "button").click()
    assert heads["Loss"].get_attribute("aria-sort") == "descending"
    assert names()[0] == "d"
    css(page, "#group").send_keys("rare")
    assert names() == ["c"]
    assert css(page, "#count").text == "1 of 4 shown"
    css(page, "#name").send_keys("zzz")
    assert names() == []
    assert css(page, "#count").text == "0 of 4 shown"


def test_the_sheet_has_values_and_history(page: Chrome):
    row = css(page, "#sheet tbody tr")
    cells = [cell.text for cell in row.find_elements("css selector", "th, td")]
    assert cells[:7] == ["d", "0.93", "mislabeled", "3", "25.00", "5.200", "2.000"]
    button = row.find_element("tag name", "button")
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    assert every(page, ".history")
    button.click()
    assert not every(page, ".history")


def test_suspicion_is_a_bar_with_its_threshold_second_also_on_a_phone(page: Chrome):
    script = "const [a, b] = arguments; return document.querySelector('#sheet tbody tr ' + a).getAttribute(b)"
    whole = float(page.execute_script(script, ".share .track", "width"))
    assert float(page.execute_script(script, ".share .fill", "width")) == pytest.approx(0.93 * whole)
    assert page.execute_script(script, ".share .fill", "data-kind") == "m"
    assert page.execute_script(script, ".share .threshold", "d").startswith(f"M{0.5 * whole:g},")
    assert "From a suspicion of 0.5 on" in css(page, "#sheet-note").text
    look(page, 390, 844)
    until(lambda: page.execute_script("return innerWidth") == 390)
    cell = css(page, "#sheet tbody td:nth-child(2)")
    assert cell.text == "0.93"
    box = page.execute_script("return arguments[0].getBoundingClientRect().toJSON()", cell)
    assert 0 < box["left"] < box["right"] <= 390


def with_estimates(browser: Chrome, folder: Path, estimates: list[tuple], names: str = "abcd") -> Chrome:
    """A page of an `auto` run of three rounds; the last of four clients is judged mislabeled."""
    groups = ["common", "common", "common", "mislabeled"][: len(names)]
    lines = [a_line(i, list(names), groups, estimates=estimates) for i in (1, 2, 3)]
    show(browser, folder, write_page([read_run(write_run(folder / "a", lines, list(names), method="fedpca-hs-auto"))]))
    return browser


ESTIMATES = [
    (0.0, 0.0, 0.12, "not mislabeled"),
    (0.02, 0.0, 0.15, "not mislabeled"),
    (0.2, 0.0, 0.62, "cannot tell"),
    (0.34, 0.22, 0.47, "mislabeled"),
]


def test_an_estimate_has_its_interval_the_line_and_the_last_answer(browser: Chrome, tmp_path: Path):
    page = with_estimates(browser, tmp_path, ESTIMATES)
    heads = [cell.text.split(" \u2195")[0] for cell in every(page, "#sheet thead th")]
    assert "Wrong labels, estimated" in page.execute_script("return document.querySelector('#sheet thead').textContent")
    assert not any("Suspicion" in head for head in heads)
    rows = {row.find_element("tag name", "th").text: row for row in every(page, "#sheet tbody tr")}
    cells = {name: [cell.text for cell in row.find_elements("tag name", "td")] for name, row in rows.items()}
    assert cells["d"][:3] == ["0.34 (0.22\u20130.47)", "mislabeled", "mislabeled"]
    assert cells["c"][:3] == ["0.20 (0.00\u20130.62)", "common", "cannot tell"]
    assert cells["a"][2] == "not mislabeled"
    note = css(page, "#sheet-note").text
    assert "the dashed line 0.1." in note
    assert "2 rounds in a row" in note
    assert "Whoever cannot be told is trained like a common client." in note
    assert "From a suspicion of" not in note


def test_whisker_and_line_stand_where_their_values_are(browser: Chrome, tmp_path: Path):
    page = with_estimates(browser, tmp_path, ESTIMATES)
    d = next(row for row in every(page, "#sheet tbody tr") if row.find_element("tag name", "th").text == "d")
    box = "return arguments[0].querySelector(arguments[1]).getBoundingClientRect().toJSON()"
    track, whisker, line = (
        page.execute_script(box, d, f".share .{name}") for name in ("track", "interval", "threshold")
    )
    share = [(x - track["left"]) / track["width"] for x in (whisker["left"], whisker["right"], line["left"])]
    assert share == pytest.approx([0.22, 0.47, 0.1], abs=0.03)


def test_the_history_has_the_interval_as_a_band(browser: Chrome, tmp_path: Path):
    page = with_estimates(browser, tmp_path, ESTIMATES)
    css(page, "#sheet tbody tr button").click()
    drawn = every(page, ".history figure:has(.band[d^=M])")
    assert [figure.find_element("tag name", "figcaption").text for figure in drawn] == ["Wrong labels, estimated"]
    label = drawn[0].find_element("css selector", "svg").get_attribute("aria-label")
    assert label.endswith("0.34 at last (0.22 to 0.47)")


def test_a_mark_tells_estimate_interval_and_answer(browser: Chrome, tmp_path: Path):
    page = with_estimates(browser, tmp_path, ESTIMATES)
    page.execute_script("arguments[0].focus()", mark(page, 2))
    told = css(page, ".tip").text.split("\n")
    assert told[told.index("wrong labels, estimated") + 1] == "0.20 (0.00 to 0.62)"
    assert told[told.index("answer of this round") + 1] == "cannot tell"


def test_two_clients_have_an_interval_without_an_estimate(browser: Chrome, tmp_path: Path):
    page = with_estimates(browser, tmp_path, [(None, 0.0, 0.5, "cannot tell")] * 2, "ab")
    first = [cell.text for cell in every(page, "#sheet tbody tr:first-child td")]
    assert first[0] == "\u2013 (0.00\u20130.50)"
    assert first[2] == "cannot tell"
    assert "It cannot be told of any of the 2 clients" in css(page, "#found").text


def test_the_interval_is_seen_on_a_phone(browser: Chrome, tmp_path: Path):
    page = with_estimates(browser, tmp_path, ESTIMATES)
    look(page, 390, 844)
    until(lambda: page.execute_script("return innerWidth") == 390)
    box = page.execute_script("return document.querySelector('#sheet td small').getBoundingClientRect().toJSON()")
    assert 0 < box["left"] < box["right"] <= 390


def test_the_page_says_when_judging_began(page: Chrome):
    assert "Judging began in round 3, after the warm-up." in css(page, "#sheet-note").text
    assert "Judging began in round 3." in css(page, "#found").text


def test_what_means_nothing_is_hidden(browser: Chrome, tmp_path: Path):
    lines = [a_line(i, groups=None) for i in (1, 2)]
    for line in lines:
        line["groups"] = {"all": line["groups"]["common"]}
        line["clients"]["weight"] = line["weights"] = None
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", lines, method="rfa", truth={}))]))
    assert [cell.text.split()[0] for cell in every(browser, "#sheet thead th")] == ["Client", "Images"]
    assert not css(browser, "#weights").is_displayed()
    assert not css(browser, "#group").is_displayed()
    assert css(browser, "#accuracy .key").text.split("\n") == ["accuracy", "80.0 %"]
    heads = [cell.text for cell in every(browser, "#tables th[scope=col]")]
    assert heads == ["method", "ACC", "AUC", "seeds"]
    assert "worst" not in css(browser, "main").text.lower()


def test_another_run_changes_what_is_shown(page: Chrome):
    assert "judged mislabeled: client d" in css(page, "#found").text
    choose(page, "fedavg")
    assert "fedavg judges nobody" in css(page, "#found").text
    assert "judged mislabeled: client d" not in css(page, "#found").text
    assert "does not ask clients for both loss and dispersion" in css(page, "#plane .note").text
    assert css(page, "#at").text == "Round 2 of 20"
    assert "fedavg judges nobody" in css(page, "#sheet-note").text
    assert "fedavg, seed 0" in css(page, "#settings").text
    assert [cell.text.split()[0] for cell in every(page, "#sheet thead th")] == [
        *("Client", "Weight,", "Images", "Truly")
    ], "what the run does not have is left out"


def test_nothing_leaves_the_machine(page: Chrome, tmp_path: Path):
    page.get_log("performance")
    page.refresh()
    css(page, "#play").click()
    asked = requests(page)
    assert asked
    assert {address for address in asked if not address.startswith(("file://", "data:"))} == set()
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    refused = page.execute_async_script(
        "const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done('sent'), (e) => done(e.name))"
    )
    assert refused == "TypeError"
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def lightness(browser: Chrome, selector: str) -> float:
    colour = browser.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor", selector
    )
    return sum(int(part) for part in colour.split("(")[1].split(")")[0].split(",")[:3]) / 3 / 255


def test_light_and_dark(page: Chrome):
    assert lightness(page, "body") > 0.9
    look(page, 1200, 900, color_scheme="dark")
    assert lightness(page, "body") < 0.2
    until(lambda: css(page, "#theme").text == "Light colours")  # an event tells the page
    css(page, "#theme").click()
    assert lightness(page, "body") > 0.9
    css(page, "#theme").click()
    assert lightness(page, "section") < 0.2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_marks_stand_out(page: Chrome, scheme: str):
    """WCAG 2.2: 4.5 to 1 for text, 3 to 1 for the edges of marks."""
    look(page, 1200, 900, color_scheme=scheme)
    script = """
        const [selector, property, behind] = arguments;
        const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const level = (colour) => {
          canvas.fillStyle = colour;
          canvas.fillRect(0, 0, 1, 1);
          const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const of = (s, p) => level(getComputedStyle(document.querySelector(s))[p]);
        const pair = [of(selector, property), of(behind, "backgroundColor")].sort((a, b) => b - a);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    """
    for selector, behind in (
        (".lead", "section"),
        (".notes dd", "section"),
        (".scene", "body"),
        ("#sheet th button", "section"),
    ):
        assert page.execute_script(script, selector, "color", behind) >= 4.5, selector
    for kind in "crm":
        selector = f'#plane .canvas .mark[data-kind="{kind}"]'
        assert page.execute_script(script, selector, "stroke", "section") >= 3, selector


def test_every_control_has_a_name(page: Chrome):
    until(lambda: every(page, '#plane g[tabindex="0"]'))
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("button", "slider", "combobox", "searchbox", "checkbox", "region", "table", "image", "link")
    named = {(n["role"]["value"], n["name"]["value"]) for n in tree if "name" in n and n["role"]["value"] in roles}
    assert {role for role, _ in named} >= {"button", "slider", "combobox", "searchbox", "checkbox", "table", "image"}
    assert [role for role, name in named if not name] == []


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_no_sideways_scrolling(page: Chrome, width: int):
    css(page, "#sheet tbody button").click()
    look(page, width, 740)
    until(lambda: page.execute_script("return innerWidth") == width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    drawn = "return document.querySelector('#plane svg').getBoundingClientRect().width"  # at once: it is drawn anew
    assert page.execute_script(drawn) <= width


def test_reduced_motion_is_respected(page: Chrome):
    moves = "return getComputedStyle(document.querySelector('#plane g[data-client]')).transitionDuration"
    css(page, "#play").click()
    assert page.execute_script(moves) != "0s"
    look(page, 1200, 900, reduced_motion="reduce")
    assert page.execute_script(moves) == "0s"


def test_print_has_the_content_and_no_controls(page: Chrome):
    look(page, 750, 1000, media="print", color_scheme="dark")
    for selector in ("#play", "#round", "#choose", "#theme", "#clients form"):
        assert not css(page, selector).is_displayed(), selector
    for selector in ("#found", "#tables table", "#plane svg", "#sheet", "#at"):
        assert css(page, selector).is_displayed(), selector
    too_wide = "[...document.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > 751)"
    assert page.execute_script(f"return {too_wide}.map((e) => e.tagName)") == []
    assert page.execute_script("return getComputedStyle(document.documentElement).colorScheme") == "light"


def test_the_widest_table_of_clients_fits_on_paper(browser: Chrome, tmp_path: Path):
    names = [f"hospital {i}" for i in range(4)]
    lines = [a_line(i, names, suspicion=SUSPICIONS, weights=[0.1, 0.2, 0.3, 0.4]) for i in (98, 99, 100)]
    folder = write_run(tmp_path / "run", lines, names, truth={"rare": [names[2]], "mislabeled": [names[3]]}, rounds=100)
    about = json.loads((folder / "about.json").read_text())
    about["clients"] |= {"size": [12345] * 4, "wrong_labels": [0, 0, 0, 1234]}
    (folder / "about.json").write_text(json.dumps(about))
    show(browser, tmp_path, write_page([read_run(folder)]))
    look(browser, 688, 1000, media="print")  # A4 between its margins
    assert len(every(browser, "#sheet thead th")) == 10
    assert browser.execute_script("return document.querySelector('#sheet').getBoundingClientRect().right") <= 689


def test_names_stand_beside_the_marks_in_print_also_of_a_run_that_was_being_played(page: Chrome):
    css(page, "#play").click()
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    names = page.execute_script("return [...document.querySelectorAll('#plane .names text')].map((e) => e.textContent)")
    assert "d" in names


def test_all_who_are_judged_mislabeled_are_named_also_in_a_crowd(browser: Chrome, tmp_path: Path):
    names = [f"s{i}" for i in range(16)]
    groups = ["common", *["mislabeled"] * 15]
    line = a_line(1, names, groups, suspicion=[0.9] * 16)
    line["clients"]["loss"] = [0.5] + [4 + i % 4 / 50 for i in range(15)]
    line["clients"]["dispersion"] = [1.0] + [2 + i // 4 / 100 for i in range(15)]
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", [line], names, truth={}))]))
    until(lambda: every(browser, "#plane .names text"))
    written = {element.text for element in every(browser, "#plane .names text")}
    assert written == set(names)
    assert every(browser, "#plane .names path")


def test_of_many_clients_those_judged_mislabeled_are_named(browser: Chrome, tmp_path: Path):
    names = [f"site-{i:03}" for i in range(80)]
    line = a_line(1, names, ["common"] * 79 + ["mislabeled"], suspicion=[0.0] * 79 + [0.9])
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", [line], names, truth={}))]))
    until(lambda: every(browser, "#plane .names text"))
    assert [element.text for element in every(browser, "#plane .names text")] == ["site-079"]


def test_evil_names_stay_text(browser: Chrome, tmp_path: Path):
    line = a_line(1, clients=EVIL, suspicion=SUSPICIONS, left_out={EVIL[0]: EVIL[1]})
    truth = {"rare": [EVIL[2]], "mislabeled": [EVIL[3]]}
    show(browser, tmp_path, write_page([read_run(write_run(tmp_path / "run", [line], clients=EVIL, truth=truth))]))
    for button in every(browser, "#sheet tbody button"):
        button.click()
        assert any(name in css(browser, ".history p").text for name in EVIL)
        assert button.text in EVIL
    browser.execute_script("document.querySelector('#plane g[data-client=\"0\"]').focus()")
    assert css(browser, ".tip").text.startswith(f"Client {EVIL[0]}")
    assert EVIL[3] in css(browser, "#found").text
    assert every(browser, "img, b") == []
    assert len(every(browser, "script")) == 2


def a_large_run(folder: Path, clients: int, rounds: int) -> Run:
    names = [f"site-{i:03}" for i in range(clients)]
    groups = [list(PLACES)[i % 3] for i in range(clients)]
    small = read_run(
        write_run(
            folder / "run",
            [a_line(1, names, groups)],
            names,
            rounds=rounds,
            truth={"rare": names[1::3], "mislabeled": names[2::3]},
        )
    )
    lines = []
    for number in range(1, rounds + 1):
        line = a_line(number, names, groups, suspicion=[i * number % 997 / 1000 for i in range(clients)])
        for name, step in (("loss", 0.0137), ("dispersion", 0.0061)):
            line["clients"][name] = [v + step * (i * number % 89) for i, v in enumerate(line["clients"][name])]
        lines.append(line)
    return Run(small.folder, small.settings, small.about, lines)


def test_500_clients_and_300_rounds(browser: Chrome, tmp_path: Path):
    page = write_page([a_large_run(tmp_path, 500, 300)])
    assert len(page) < 5_000_000
    empty, full = (_seconds_to_load(browser, tmp_path, text) for text in ("<!doctype html><title>empty</title>", page))
    print(f"{len(page) / 1e6:.1f} MB; an empty page loads in {empty:.2f} s, this one in {full / empty:.0f} times that")
    assert len(every(browser, "#plane g[data-client]")) == 500
    assert len(every(browser, "#sheet tbody tr")) == 500
    before = browser.execute_script("return document.querySelector('#plane g[data-client]').style.transform")
    browser.execute_script(
        "const s = document.querySelector('#round'); s.value = 150; s.dispatchEvent(new Event('input'))"
    )
    assert css(browser, "#at").text.startswith("Round 150 of 300")
    assert browser.execute_script("return document.querySelector('#plane g[data-client]').style.transform") != before
    css(browser, "#name").send_keys("site-49")
    assert css(browser, "#count").text == "10 of 500 shown"
    look(browser, 360, 740)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360


def _seconds_to_load(browser: Chrome, folder: Path, page: str) -> float:
    show(browser, folder, page)
    times = "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd"
    until(lambda: browser.execute_script(times) > 0)
    return browser.execute_script(times) / 1000


def test_the_chart_shows_the_metric_that_was_chosen(browser: Chrome, tmp_path: Path):
    show(browser, tmp_path, write_page(runs_with(tmp_path / "runs", "bacc")))
    assert css(browser, "#accuracy h3").text == "Balanced accuracy on the test images"
    assert "the one of lowest balanced accuracy" in css(browser, "#accuracy p").text
    assert "25.3 %" in css(browser, "#accuracy .key").text
    assert css(browser, "#accuracy svg[role=img]").get_attribute("aria-label").startswith("Balanced accuracy over")
