"""The documentation page of a method, and what of it a person wants on the screen."""

from __future__ import annotations

import re
from inspect import getdoc
from pathlib import Path

from fedpca.settings.catalogue import METHODS
from fedpca.settings.experiment import leaves
from fedpca.settings.names import entry, outside, parse

PARTS = ("Idea", "Computation", "Settings", "Deviations", "When to use it")  # what every page is made of, in order


def folder() -> Path:
    """Where the pages are: beside the package's files when installed, in docs/ of a checkout."""
    package = Path(__file__).parents[1]
    return next((f for f in (package / "pages", package.parents[1] / "docs" / "methods") if f.is_dir()), package)


def page_of(name: str) -> Path | None:
    """The page that describes a method; several methods may share one, and those of other packages have none."""
    simple, drops = parse(name)
    shared = {"fedism+": "fedism", **{known: "fedpca" for known in METHODS if known.startswith("fedpca-")}}
    title = "with-drop" if drops else "combinations" if len(simple) > 1 else shared.get(name, name)
    path = folder() / f"{title}.md"
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


def describe(name: str) -> str:
    """A method on one screen, as Markdown: what it is, its idea, what is computed, its settings, when to use it."""
    known, path = entry(name), page_of(name)
    text = parts_of(_read(path)) if path else {"Idea": getdoc(outside(name)) or ""}
    told = {title: f"**{title}.** {text[title]}" for title in PARTS if text.get(title)}
    blocks = [f"{name} ({known.category}): {known.summary}", told.get("Idea"), told.get("Computation")]
    blocks += [_settings(table) for table in parse(name).tables()]
    blocks += [told.get("When to use it"), f"The whole page: {path}" if path else None]
    return "\n\n".join(block for block in blocks if block)


def _settings(table: str) -> str:
    """One settings table as it can be written into an experiment file, with the reasons that its page gives."""
    defaults = leaves(entry(table).settings().model_dump(mode="json"))
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
