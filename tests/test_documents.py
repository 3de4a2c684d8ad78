"""What documents keep: lines that fit, links that lead somewhere, numbers as 0.5, the settings of the code."""

import re
import shlex
from itertools import takewhile
from pathlib import Path

import click
import pytest
from typer.main import get_command

from fedpca.cli.main import app
from fedpca.methods.registry import METHODS, settings_of
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import flatten

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "LOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


def test_experiment_files_keep_this_too():
    for path in sorted((ROOT / "experiments").rglob("*.toml")):
        lines = path.read_text().splitlines()
        assert [line for line in lines if len(line) > 120] == [], path
        assert [line for line in lines if re.search(r"#.*(?<![\w.…/])\.\d", line)] == [], path


@each_page
def test_every_file_that_is_named_exists(page: Path):
    words = re.findall(r"`([\w./-]+/[\w.-]*\.(?:py|toml|md))`", page.read_text())
    rooms = [path for path in (ROOT / "src" / "fedpca").iterdir() if path.is_dir()]
    places = (ROOT, ROOT / "src" / "fedpca", ROOT / "experiments", page.parent, *rooms)
    wrong = [word for word in words if not any((place / word).exists() for place in places)]
    assert [word for word in wrong if not re.search(r"NAME|keys/|^data/", word)] == []


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
    known = set(flatten(Experiment(data={"clients": 2}).model_dump(mode="json")))
    assert explained_keys() - {"setting.NAME", "method.NAME"} == known - {"method"}


def keys_in(cell: str) -> set[str]:
    """The keys that a text names in backticks; `a.{b,c}` are a.b and a.c."""
    keys: set[str] = set()
    for word in re.findall(r"`([^`]+)`", cell):
        start, _, inner = word.rstrip("}").partition("{")
        keys |= {start + end for end in inner.split(",")}
    return keys


def test_the_settings_page_names_every_key_of_every_method():
    text = (ROOT / "docs" / "settings.md").read_text().split("## Settings of methods")[1].split("\n## ")[0]
    (listed,) = re.findall(r"^`identify\.\*` (.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    found: dict[str, set[str]] = {}
    keys: set[str] = set()
    for row in (line.split("|") for line in text.splitlines() if line.startswith("| `")):
        keys = keys_in(row[2]) | (keys if "those, and" in row[2] else set())
        keys = keys - {"identify.*"} | (keys_in(listed) if "identify.*" in keys else set())
        found |= dict.fromkeys(re.findall(r'`method\."?([^`"]+)"?`', row[1]), keys)
    assert found.keys() == {*METHODS.own, "A+B", "X+d"}
    for name, own in found.items():
        method = {"A+B": "fedavg+median", "X+d": "fedavg+d"}.get(name, name)
        known = flatten(settings_of(method, method, {}).model_dump(mode="json"))
        assert own == known.keys() - {"high_confidence"}, name


def commands(page: Path) -> list[list[str]]:
    """The words of every `fedpca …` line in a page's code blocks, without its comment."""
    lines = page.read_text().replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.startswith(("    fedpca ", "fedpca "))]
    return [list(takewhile(lambda word: word not in ("&&", "&", "|"), own)) for own in words]


@each_page
def test_every_command_and_option_exists(page: Path):
    for words in commands(page):
        command = get_command(app)
        rest = words[1:]
        while isinstance(command, click.Group) and rest:
            assert rest[0] in command.commands, words
            command, rest = command.commands[rest[0]], rest[1:]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known, words


@each_page
def test_tests_that_a_page_names_are_there(page: Path):
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, f"{file}::{name}"
