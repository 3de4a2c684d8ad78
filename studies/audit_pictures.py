"""Pictures of an audit's pages for the documents: `python -m studies.audit_pictures docs/images`.

What they show is made up and says so: "Example: …". They need chromium and chromedriver.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedpca.auditing.pages import page_html, sheet_html
from fedpca.auditing.pages.server import reviewing
from fedpca.auditing.suspects import as_row, write_suspects
from studies.audit_example import an_audit, digits, suspects

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1")
SITE = "bonn"


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place, chromium(place) as browser:
        folder = write_example(Path(place))
        picture(browser, (folder / "page.html").as_uri(), out / "audit-page.png", 1200, 1500)
        picture(browser, (folder / "page.html").as_uri(), out / "audit-phone.png", 390, 1500)
        picture(browser, (folder / SITE / "sheet.html").as_uri(), out / "audit-sheet.png", 1200, 1350)
        with reviewing(folder / SITE) as address:
            picture(browser, address, out / "audit-review.png", 1200, 830, "#image[src]")
            picture(browser, address, out / "audit-review-phone.png", 390, 860, "#image[src]")
            browser.get("about:blank")
    print("\n".join(str(path) for path in sorted(out.glob("audit-*.png"))))


def write_example(folder: Path) -> Path:
    """The files of an audit of scanned digits, whose numbers are made up."""
    audit = an_audit()
    (folder / "page.html").write_text(page_html(audit), encoding="utf-8")
    entry = next(client for client in audit["clients"] if client["client"] == SITE)
    site: dict[str, Any] = {**entry, **{key: audit[key] for key in ("classes", "fdr", "name", "sample")}}
    images = folder / SITE / "images"
    images.mkdir(parents=True)
    rows, pictures = suspects(), digits()
    for own in rows:
        (images / f"{own.row}.png").write_bytes(pictures[own.row])
    write_suspects(folder / SITE / "suspects.csv", rows)
    (folder / SITE / "site.json").write_text(json.dumps(site), encoding="utf-8")
    sheet = sheet_html(site, [as_row(own) for own in rows], pictures)
    (folder / SITE / "sheet.html").write_text(sheet, encoding="utf-8")
    return folder


def picture(browser: Chrome, address: str, path: Path, width: int, height: int, wait_for: str = "main") -> None:
    """What a window of this size shows, as a PNG."""
    from selenium.webdriver.support.ui import WebDriverWait

    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)
    WebDriverWait(browser, 20).until(lambda b: b.find_elements("css selector", wait_for))
    loaded = "return [...document.images].every((i) => i.hidden || i.loading === 'lazy' || i.naturalWidth > 0)"
    WebDriverWait(browser, 20).until(lambda b: b.execute_script(loaded))
    browser.save_screenshot(str(path))


@contextmanager
def chromium(place: str) -> Iterator[Chrome]:
    """A browser with a profile of its own."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not program or not driver:
        sys.exit("these pictures need chromium and chromedriver (apt-get install chromium chromium-driver)")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={place}/profile"):
        options.add_argument(flag)
    with Chrome(options=options, service=Service(driver)) as browser:
        yield browser


if __name__ == "__main__":
    main()
