"""The documentation page of a method, and what of it a person wants on the screen."""

from __future__ import annotations

import re
from inspect import getdoc
from pathlib import Path

from fedpca.methods.registry import METHODS, facts, parse, settings_of
from fedpca.settings.base import Table
from fedpca.settings.toml import flatten

PARTS = ("Idea", "Computation", "Settings", "Deviations", "When to use it")  # what every page is made of, in order


def folder() -> Path:
    """Where the pages are: beside the package's files when installed, in docs/ of a checkout."""
    package = Path(__file__).parents[1]
    return next((f for f in (package / "pages", package.parents[1] / "docs" / "methods") if f.is_dir()), package)


def page_of(name: str) -> Path | None:
    """The page that describes a method; several methods may share one, and those of other packages have none."""
    path = folder() / f"{facts(name).page}.md"
    return path if path.is_file() else None


def parts_of(page: str) -> dict[str, str]:
    """The text of each part of a page, by its name."""
    pieces = re.split(r"^\*\*([^*]+)\.\*\*", page, flags=re.MULTILINE)
    return {title: text.strip() for title, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def explained_settings(page: str) -> dict[str, tuple[str, str]]:
    """The rows of a page's table of settings: name -> default, and where it comes from."""
    lines = parts_of(page).get("Settings", "").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {name.split("`")[1]: (default, source) for name, default, source in rows}


def default_settings(table: str, method: str = "") -> Table:
    """The defaults in one of a method's tables, nested ones under dotted keys."""
    return flatten(settings_of(table, method or table, {}).model_dump(mode="json"))


def describe(name: str) -> str:
    """A method on one screen, as Markdown: what it is, its idea, what is computed, its settings, when to use it."""
    known, path = facts(name), page_of(name)
    text = parts_of(_read(path)) if path else {"Idea": _docstring(name)}
    shown = {title: f"**{title}.** {text[title]}" for title in PARTS if text.get(title)}
    blocks = [f"{name} ({known.family}): {known.summary}", shown.get("Idea"), shown.get("Computation")]
    blocks += [_settings(table, name) for table in parse(name).tables()]
    blocks += [shown.get("When to use it"), f"The whole page: {path}" if path else None]
    return "\n\n".join(block for block in blocks if block)


def _docstring(name: str) -> str:
    return getdoc(METHODS[name].build) or ""


def _settings(table: str, method: str) -> str:
    """One settings table as it can be written into an experiment file, with the reasons that its page gives."""
    defaults = default_settings(table, method)
    quoted = table if re.fullmatch(r"[\w-]+", table) else f'"{table}"'
    if not defaults:
        return f"`[method.{quoted}]` has no settings."
    path, width = page_of(table), max(map(len, defaults))
    reasons = {key: why for key, (_, why) in explained_settings(_read(path) if path else "").items()}
    lines = [f"{key:<{width}}  {_toml(value):<8}  {reasons.get(key, '')}".rstrip() for key, value in defaults.items()]
    return "\n".join(f"    {line}" for line in (f"[method.{quoted}]", *lines))  # four spaces: as it stands


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _toml(value: object) -> str:
    """A default as it would be written; nothing stands for "not given"."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
