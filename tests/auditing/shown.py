"""What a browser shows, asked in few words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.results.conftest import look

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

EVIL = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "'\"&amp;", "${1}<b>x", "a" * 90]
# Pairs of shown texts and controls that lie over one another, unless one is inside the other.
OVERLAPS = """
    const own = [...document.querySelectorAll("th, td, h1, h2, h3, p, li, button, img, dt, dd, input")]
      .filter((e) => e.checkVisibility() && !e.closest(".skip") && e.getBoundingClientRect().width > 2
        && getComputedStyle(e.closest("thead") ?? e).position !== "absolute");
    const boxes = own.map((e) => e.getBoundingClientRect());
    const text = (e) => {
      const range = document.createRange();
      range.selectNodeContents(e);
      return range.getBoundingClientRect();
    };
    const found = [];
    own.forEach((a, i) => own.forEach((b, j) => {
      if (j <= i || a.contains(b) || b.contains(a)) return;
      const [p, q] = [[a, i], [b, j]].map(([e, k]) => (e.matches("img, button, input") ? boxes[k] : text(e)));
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 1 && high > 1) found.push(`${a.textContent.slice(0, 30)} | ${b.textContent.slice(0, 30)}`);
    }));
    return found;
"""


def text_of(browser: Chrome, selector: str) -> str:
    return browser.find_element("css selector", selector).text


def every(browser: Chrome, selector: str) -> list[str]:
    return [element.text for element in browser.find_elements("css selector", selector)]


def until(true: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def fits(browser: Chrome, width: int) -> None:
    """Nothing to scroll sideways at this width, and nothing lies over anything else."""
    look(browser, width, 800)
    until(lambda: browser.execute_script("return innerWidth") == width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(OVERLAPS) == []
