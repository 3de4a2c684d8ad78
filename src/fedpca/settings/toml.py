"""TOML files and tables: read, merged, changed by `key=value`, checked with messages that say what to change."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import tomli_w
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fedpca.errors import SettingsError, nearest
from fedpca.settings.base import DEVICE, Settings, Table

NAME = r"^\w[\w .,+=-]*$"  # of an experiment and of a setting: both name folders
PLAIN = {  # pydantic's words for Python's types, in TOML's
    "tuple_type": 'input should be a list, such as ["fedavg"]',
    "model_type": "input should be a table",
    "dict_type": "input should be a table",
}
PATTERNS = {
    NAME: "should be letters, digits, spaces and . , + = - _, since it names a folder",
    DEVICE: "should be cpu, mps, cuda or cuda:N",
}
MAX_DEPTH = 20  # of tables and lists within each other; settings need six
MAX_INTEGER = 2**63 - 1  # TOML's integers have 64 bits
MAX_SHOWN = 80  # characters of a value in a message
TOO_DEEP = f"tables or lists are nested too deeply: at most {MAX_DEPTH} within each other are read"
TOO_LONG = f"an integer is too long: at most 64 bits are read, up to {MAX_INTEGER}"
Kind = TypeVar("Kind", bound=Settings)


def read_table(path: Path) -> Table:
    """What a TOML file holds."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"there is no settings file {path}") from None
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not valid TOML: it must be a text file in UTF-8") from None
    try:
        return _parse(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _parse(text: str) -> Table:
    """What TOML says, without what no setting can be: tables without end, integers of more than 64 bits."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise SettingsError(TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python converts no text of thousands of digits
        raise SettingsError(TOO_LONG) from None
    _require_bounds(table, MAX_DEPTH)
    return table


def _require_bounds(value: object, depth: int) -> None:
    if depth < 0:
        raise SettingsError(TOO_DEEP)
    if isinstance(value, int) and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        raise SettingsError(TOO_LONG)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_bounds(inner, depth - 1)


def write_table(settings: Settings) -> str:
    """Settings as TOML; what is None is left out."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))


def setting_tables(table: Table, only: Sequence[str], source: str) -> dict[str, Table]:
    """Each `[setting.NAME]` over the rest of the file, in the file's order; the file itself, named "", if it has none.

    With `only` those of these names.
    """
    rest = {key: value for key, value in table.items() if key != "setting"}
    found = _checked_settings(table["setting"], source) if "setting" in table else {"": {}}
    for name in only:
        if name not in found or not name:
            there = [known for known in found if known]
            none = "" if there else "; it has none, so leave --setting out"
            raise SettingsError(f"{source}: there is no setting {name!r}{nearest(name, there)}{none}")
    return {name: merge(rest, own) for name, own in found.items() if not only or name in only}


def _checked_settings(found: object, source: str) -> dict[str, Table]:
    if not isinstance(found, dict) or not found:
        raise SettingsError(f'{source}: setting: needs tables such as [setting."rho=0.2 eta=1"] (got: {found!r})')
    for name, own in found.items():
        where = f"{source}, setting {name!r}"
        if not re.fullmatch(NAME, name):
            raise SettingsError(f"{where}: its name {PATTERNS[NAME]}")
        if not isinstance(own, dict):
            raise SettingsError(f"{where}: {PLAIN['dict_type']} (got: {own!r})")
        if fixed := [key for key in ("name", "setting") if key in own]:
            raise SettingsError(f"{where}: a setting may change anything but name and setting: remove {fixed[0]!r}")
    return found


def merge(below: Mapping[str, object], above: Mapping[str, object]) -> Table:
    """Both tables in one, deeply; where both have a value, that of `above`."""
    both = dict(below)
    for key, value in above.items():
        under = both.get(key)
        both[key] = merge(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both


def nest(flat: Mapping[str, object]) -> Table:
    """Dotted keys as tables in tables."""
    table: Table = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        inner = table
        for part in path:
            step = inner.setdefault(part, {})
            if not isinstance(step, dict):
                raise SettingsError(f"{key!r}: {part!r} is given as a value too; it can only be one of both")
            inner = step
        inner[last] = value
    return table


def flatten(table: Mapping[str, object], prefix: str = "") -> Table:
    """The values of nested tables under dotted keys."""
    flat: Table = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def change(table: Table, text: str) -> Table:
    """The table with one `a.b=c` in it; c is read as TOML and, failing that, as a plain string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"--set {text!r}: write it as key=value, such as --set noise.clients=0.4")
    try:
        path, read = _path(key.strip()), _value(value)
        _require_bounds(read, MAX_DEPTH - len(path))
    except SettingsError as error:
        raise SettingsError(f"--set {shorten(text)}: {error}") from None
    inner: object = table
    for part in path[:-1]:
        inner = inner.get(part, {}) if isinstance(inner, dict) else inner
        if not isinstance(inner, dict):
            raise SettingsError(f"--set {text!r}: {part!r} is a value, not a table")
    for part in reversed(path):
        read = {part: read}
    return merge(table, cast("Table", read))


def _value(text: str) -> object:
    try:
        return _parse(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def shorten(text: str) -> str:
    """The text, cut where it is too long for a message."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def _path(key: str) -> list[str]:
    """The parts of a dotted key; those with dots of their own are quoted, as in TOML."""
    try:
        inner: object = _parse(f"{key} = 0")
    except tomllib.TOMLDecodeError:  # a bare fedavg+d is no TOML, but plain enough
        return key.split(".")
    path = []
    while isinstance(inner, dict):
        if len(inner) != 1:  # a comment, a table's head or several lines: no key
            return key.split(".")
        ((part, inner),) = inner.items()
        path.append(part)
    return path


def validate(kind: type[Kind], table: object, source: str, prefix: tuple[str, ...] = ()) -> Kind:
    """Settings of a kind from a plain table; an error has a line for every fault, which names `source` and the key."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        lines = [_explain(kind, details, prefix) for details in error.errors()]
        raise SettingsError("\n".join(f"{source}: {line}" for line in lines)) from None


def _explain(root: type[Settings], details: ErrorDetails, prefix: tuple[str, ...]) -> str:
    place = tuple(str(part) for part in details["loc"])
    key = ".".join((*prefix, *place))
    if details["type"] != "extra_forbidden":
        pattern = PATTERNS.get(str(details.get("ctx", {}).get("pattern")))
        known = PLAIN.get(details["type"]) or (pattern and f"input {pattern}")
        reason = known or details["msg"].removeprefix("Value error, ")
        got = shorten(repr(details["input"]))
        return f"{key}: {reason[0].lower() + reason[1:]} (got: {got})" if place else reason
    owner = _kind_at(root, place[:-1])
    table = ".".join((*prefix, *place[:-1]))
    if place[-1] in owner.RENAMED:
        return f"unknown key {key!r}: it is now called {f'{table}.'.lstrip('.')}{owner.RENAMED[place[-1]]}"
    if place[-1] in owner.REPLACED:
        new, difference = owner.REPLACED[place[-1]]
        return f"unknown key {key!r}: in its place set {f'{table}.'.lstrip('.')}{new}, {difference}"
    where, allowed = f"[{table}]" if table else "the file's top level", list(owner.model_fields)
    close = nearest(place[-1], allowed).partition(";")[0]
    return f"unknown key {key!r}{close}; {where} takes {', '.join(allowed) or 'no key at all'}"


def _kind_at(root: type[Settings], place: Sequence[str]) -> type[Settings]:
    """The settings class of a table within another."""
    for part in place:
        inner = _inner_kind(root, part)
        assert inner is not None, f"{part} is no table"
        root = inner
    return root


def _inner_kind(kind: type[Settings], key: str) -> type[Settings] | None:
    annotation = kind.model_fields[key].annotation if key in kind.model_fields else None
    options = (annotation, *getattr(annotation, "__args__", ()))  # the class itself, or one of `X | None`
    return next((own for own in options if isinstance(own, type) and issubclass(own, Settings)), None)


def upgrade(kind: type[Settings], table: Mapping[str, object]) -> Table:
    """A table that an earlier version wrote, with the keys that the settings have now.

    Keys of `REPLACED` stay as they are: no value of today says the same.
    """
    given = {key: value for key, value in table.items() if key not in kind.RENAMED}
    for key, value in table.items():
        if key in kind.RENAMED:
            given = _put(kind, given, kind.RENAMED[key].split("."), value)
    inner = {key: _inner_kind(kind, key) for key in given}
    return {
        key: upgrade(own, value) if (own := inner[key]) and isinstance(value, dict) else value
        for key, value in given.items()
    }


def _put(kind: type[Settings], table: Table, path: list[str], value: object) -> Table:
    first, *rest = path
    if not rest:
        return {**table, first: value}
    inner, under = _inner_kind(kind, first), table.get(first, {})
    assert inner is not None, f"{first} is no table"
    return {**table, first: _put(inner, under if isinstance(under, dict) else {inner.SHORTHAND: under}, rest, value)}
