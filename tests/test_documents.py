"""What documents keep: lines that fit, links that lead somewhere, numbers as 0.5, the settings of the code."""

import re
from pathlib import Path

import pytest

from fedpca.settings.experiment import Experiment, leaves

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> list[str]:
    """The lines of a page that are not code, a table or an image."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if not line.startswith(("|", "    ", "!["))]


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: the headings as GitHub writes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@each_page
def test_prose_wraps_at_120_columns(page: Path):
    assert [line for line in prose(page) if len(line) > 120 and not line.startswith("#")] == []


@each_page
def test_numbers_below_one_start_with_a_zero(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in re.sub(r"`[^`\n]*`", "", text).splitlines() if not line.startswith("    ")]
    assert [line for line in lines if re.search(r"(?<![\w.…/])\.\d", line)] == []


@each_page
def test_every_link_to_a_file_leads_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def explained_keys() -> set[str]:
    """The first column of the table of keys in docs/settings.md; `.b` after `a.x` is `a.b`."""
    text = (ROOT / "docs" / "settings.md").read_text()
    keys = set()
    for row in text.split("## Keys")[1].split("\n## ")[0].splitlines():
        prefix = ""
        for word in re.findall(r"`([\w.]+)`", row.split("|")[1] if row.startswith("| `") else ""):
            prefix = prefix if word.startswith(".") else word.rpartition(".")[0]
            keys.add(prefix + word if word.startswith(".") else word)
    return keys


def test_the_settings_page_names_every_key_and_no_other():
    known = set(leaves(Experiment(data={"clients": 2}).model_dump(mode="json")))
    assert explained_keys() - {"setting.NAME", "method.NAME"} == known - {"method"}
