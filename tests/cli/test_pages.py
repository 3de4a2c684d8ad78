"""Every method has a page of the same five parts, and the page's settings are the code's."""

import re
import tomllib

import pytest

from fedpca.cli.pages import PARTS, default_settings, describe, explained_settings, page_of, parts_of
from fedpca.methods.registry import method_names


@pytest.mark.parametrize("name", method_names())
def test_every_page_has_the_five_parts_in_order(name: str):
    page = page_of(name)
    assert page is not None, name
    parts = parts_of(page.read_text())
    assert tuple(parts) == PARTS
    assert all(parts.values()), "no part is empty"
    assert f"`{name}`" in page.read_text(), "the page names the method"


@pytest.mark.parametrize("name", method_names())
def test_a_pages_settings_and_defaults_are_the_codes(name: str):
    explained = explained_settings(page_of(name).read_text())
    defaults = default_settings(name)
    assert set(defaults) <= set(explained)
    for key, value in defaults.items():
        default, source = explained[key]
        assert value is None or any(same(word, value) for word in re.split(r"[\s`,;]+", default)), (key, default)
        assert source, f"{key}: the source of the default"


def same(word: str, value: object) -> bool:
    """Whether a word of a page is a value as TOML writes it; 1 and 1.0, 1e-6 and 0.000001 are the same."""
    try:
        return tomllib.loads(f"value = {word}")["value"] == value
    except tomllib.TOMLDecodeError:
        return False


def test_a_page_explains_nothing_that_does_not_exist():
    by_page: dict[str, set[str]] = {}
    for name in method_names():
        by_page.setdefault(str(page_of(name)), set()).update(default_settings(name))
    for path, known in by_page.items():
        with open(path, encoding="utf-8") as file:
            assert set(explained_settings(file.read())) <= known, path


def test_a_description_has_the_idea_the_settings_of_all_that_it_is_made_of_and_when_to_use_it():
    text = describe("fedga+fedcorr")
    for words in ("**Idea.**", "**Computation.**", "**When to use it.**", "fair + robust"):
        assert words in text
    for table in ("[method.fedga]", "[method.fedcorr]", '[method."fedga+fedcorr"]'):
        assert table in text
    assert re.search(r"proximal +5\.0 +\w", text), "the default and its source"
    assert "has no settings" in describe("median")
