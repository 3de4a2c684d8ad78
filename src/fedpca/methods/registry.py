"""Every method by name: those of this folder, of installed packages, `package.module:name`, and their combinations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from fedpca import methods
from fedpca.errors import SettingsError
from fedpca.methods import combine, drop
from fedpca.methods.define import FAMILIES, Definition, Family
from fedpca.settings.base import Settings, Table
from fedpca.settings.names import DROP, MethodName, parse_name
from fedpca.settings.registry import PLACE, Registry
from fedpca.settings.toml import merge, upgrade, validate


def _own() -> dict[str, Definition]:
    """The definitions in this folder, by family and year."""
    modules = (import_module(f"{methods.__name__}.{found.name}") for found in iter_modules(methods.__path__))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Definition)]
    return {own.name: own for own in sorted(found, key=lambda own: (_place(own.family), own.year))}


def _place(family: Family) -> int:
    return list(FAMILIES).index(family)


METHODS = Registry("method", Definition, _own(), group="fedpca.methods", remedy=": write @fedpca.method() above it")


class Facts(NamedTuple):
    """What is to be known of a method, a combination included, without building it."""

    summary: str
    family: Family
    judges: bool
    page: str = ""


def parse(name: str) -> MethodName:
    """A method's name taken apart; an error says which part nobody knows."""
    return parse_name(name, lambda part: part in METHODS or bool(PLACE.fullmatch(part)), known_names())


@cache
def method_names() -> list[str]:
    """Every method that has a name of its own and the paper's combinations, in the order of the tables."""
    return _by_family(METHODS)


@cache
def known_names() -> list[str]:
    """The same without importing anything: methods of installed packages come last."""
    return list(dict.fromkeys((*_by_family(METHODS.own), *METHODS)))


def _by_family(names: Iterable[str]) -> list[str]:
    listed: list[tuple[Family, str]] = [("fair + robust", "+".join(pair)) for pair in combine.LISTED]
    listed += [("drop", name + DROP) for name in drop.LISTED]
    listed += [(METHODS[name].family, name) for name in names]
    return [name for _, name in sorted(listed, key=lambda item: _place(item[0]))]


def facts(name: str) -> Facts:
    """A method's summary, family, page, and whether it judges; refuses a combination that means nothing."""
    simple, drops = parse(name)
    parts = [METHODS[part] for part in simple]
    judges = [part.name for part in parts if part.judges]
    if len(parts) == 1 and not drops:
        return Facts(parts[0].summary, parts[0].family, bool(judges), parts[0].page)
    for part in parts:
        if part.alone:
            raise SettingsError(f"{name!r}: {part.name} {part.alone}, so it cannot be combined")
    if drops and judges:
        raise SettingsError(f"{name!r}: {judges[0]} judges clients mislabeled itself, so +d has nothing to add to it")
    both = "Mean of what " + " and ".join(simple) + " make of the same updates" if len(simple) > 1 else simple[0]
    if drops:
        return Facts(
            f"{both}, without the clients that FedPCA judges mislabeled", "drop", judges=True, page="with-drop"
        )
    return Facts(both, "fair + robust", bool(judges), "combinations")


def known_facts(name: str) -> Facts | None:
    """The same without importing anything: None if the method, or a part of it, is of another package, or unknown."""
    try:
        return facts(name) if all(part in METHODS.own for part in parse(name).simple) else None
    except SettingsError:
        return None


def defaults(table: str, method: str) -> tuple[type[Settings], Table, Table]:
    """The settings class of one of a method's tables, its defaults that differ from the class's, and what is fixed."""
    simple, _ = parse(method)
    if table.endswith(DROP) and table not in METHODS:
        return drop.DropSettings, {}, {}
    if table not in simple:
        return combine.MixSettings, {}, {}
    found = METHODS[table]
    preset = merge(found.preset, found.combined) if len(simple) > 1 else dict(found.preset)
    return found.settings, preset, dict(found.fixed)


def settings_of(table: str, method: str, given: Mapping[str, object], source: str = "settings") -> Settings:
    """The settings in one of a method's tables, with the defaults for what is not given."""
    kind, preset, fixed = defaults(table, method)
    for key, value in fixed.items():
        if given.get(key, value) != value:
            raise SettingsError(f"{source}: method.{table}.{key} is fixed at {value!r}, since that makes {table}")
    return validate(kind, merge(preset, {**given, **fixed}), source, ("method", table))


def upgrade_tables(tables: Mapping[str, Mapping[str, object]]) -> dict[str, Table]:
    """Settings tables as an earlier version wrote them, with the keys of today; those of other packages as they are."""
    return {name: upgrade(kind, table) if (kind := _own_kind(name)) else dict(table) for name, table in tables.items()}


def _own_kind(table: str) -> type[Settings] | None:
    if table in METHODS.own:
        return METHODS.own[table].settings
    return drop.DropSettings if table.endswith(DROP) else None
