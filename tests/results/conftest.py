"""A real browser, where there is one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One browser for all tests, with a profile of its own."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("no browser: these tests need chromium and chromedriver (apt-get install chromium chromium-driver)")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with Chrome(options=options, service=Service(driver)) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Chrome) -> Iterator[Chrome]:
    """The browser at 1200 x 900 in light colours; whatever a test does, the console must stay without errors."""
    look(chromium, width=1200, height=900)
    yield chromium
    complaints = [entry for entry in chromium.get_log("browser") if entry["level"] != "INFO"]
    chromium.get("about:blank")
    chromium.get_log("performance")
    assert complaints == []


def look(browser: Chrome, width: int, height: int, media: str = "", **features: str) -> None:
    """Sets the size of the window, and what the reader prefers."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wishes = {"prefers-color-scheme": "light", "prefers-reduced-motion": "no-preference"}
    wishes |= {f"prefers-{name.replace('_', '-')}": value for name, value in features.items()}
    asked = {"media": media, "features": [{"name": name, "value": value} for name, value in wishes.items()]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", asked)


def requests(browser: Chrome) -> list[str]:
    """Every address that the browser asked for since it was last looked."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def show(browser: Chrome, folder: Path, page: str) -> Path:
    """Opens a page from a file."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.get(path.as_uri())
    return path
