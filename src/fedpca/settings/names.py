"""What a method's name stands for: an entry of the catalogue, a function of another package, or a combination."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import getdoc, signature
from typing import NamedTuple, get_type_hints

from fedpca.errors import SettingsError, nearest
from fedpca.settings.base import NoSettings, Settings
from fedpca.settings.catalogue import METHODS, DropSettings, Entry, MixSettings

FUNCTION = re.compile(r"[\w.]+:\w+")  # package.module:function
ENTRY_POINTS = "fedpca.methods"  # the group under which another package's pyproject.toml names its methods


class Name(NamedTuple):
    """A method's name taken apart: one method or two, and whether FedPCA's dropping is added."""

    simple: tuple[str, ...]
    drops: bool

    def tables(self) -> Iterator[str]:
        """The settings tables that belong to it: those of its methods, of their combination, of the dropping."""
        yield from dict.fromkeys(self.simple)
        if len(self.simple) > 1:
            yield "+".join(self.simple)
        if self.drops:
            yield "+".join((*self.simple, "d"))


def parse(name: str) -> Name:
    """`A`, `A+B`, `A+d` or `A+B+d` taken apart; an error says which part nobody knows."""
    body = name.removesuffix("+d")
    splits = [(body[:i], body[i + 1 :]) for i, sign in enumerate(body) if sign == "+"]
    for simple in ((body,), *splits):
        if all(is_simple(part) for part in simple):
            return Name(simple, drops=body != name)
    raise _unknown(name, splits)


def is_simple(name: str) -> bool:
    """Whether it names one method: of the catalogue, of an installed package, or `package.module:function`."""
    combined = name in METHODS and METHODS[name].settings in (MixSettings, DropSettings)
    return (name in METHODS and not combined) or bool(FUNCTION.fullmatch(name)) or name in installed()


def entry(name: str) -> Entry:
    """What the catalogue says of a method, or would say of one that is not in it."""
    if name in METHODS:
        return METHODS[name]
    simple, drops = parse(name)
    entries = [METHODS.get(part) or _outside_entry(part) for part in simple]
    if len(simple) == 1 and not drops:
        return entries[0]
    judges = [part for part, known in zip(simple, entries, strict=True) if known.judges]
    if drops and judges:
        raise SettingsError(f"{name!r}: {judges[0]} names mislabeled clients itself, so +d has nothing to add to it")
    made = "the mean of what " + " and ".join(simple) + " make of the same updates" if len(simple) > 1 else simple[0]
    summary = f"{made}, without the clients that FedPCA finds mislabeled" if drops else made
    settings = DropSettings if drops else MixSettings
    return Entry(summary=summary, category="fair + robust", settings=settings, judges=bool(judges) or drops)


@cache
def installed() -> dict[str, str]:
    """The methods that installed packages offer: name -> package.module:function."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def outside(name: str) -> Callable[..., object]:
    """The function of another package that a name stands for."""
    module, _, function = installed().get(name, name).partition(":")
    try:
        found = getattr(import_module(module), function)
    except ImportError as error:
        raise SettingsError(f"method {name!r}: the module {module!r} cannot be imported: {error}") from None
    except AttributeError:
        raise SettingsError(f"method {name!r}: the module {module!r} has no {function!r}") from None
    if not callable(found):
        raise SettingsError(f"method {name!r} must be a function of the experiment, came {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _outside_entry(name: str) -> Entry:
    """The entry of another package's function: its docstring's first line, and the settings it takes, if any."""
    function = outside(name)
    summary = (getdoc(function) or f"from {name}").partition("\n")[0].rstrip(".")
    return Entry(summary=summary, category="outside", settings=_settings_of(function, name))


def _settings_of(function: Callable[..., object], name: str) -> type[Settings]:
    """The type of the function's second parameter; no settings if it takes only the experiment."""
    parameters = list(signature(function).parameters)
    if len(parameters) not in (1, 2):
        taken = ", ".join(parameters) or "nothing"
        raise SettingsError(f"method {name!r} must take the experiment and, if it has any, its settings; takes {taken}")
    if len(parameters) == 1:
        return NoSettings
    kind = get_type_hints(function).get(parameters[1])
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
        raise SettingsError(
            f"method {name!r}: the type of {parameters[1]!r} must be a subclass of fedpca.Settings, came {kind!r}"
        )
    return kind


def _unknown(name: str, splits: list[tuple[str, str]]) -> SettingsError:
    """Which part of a name is unknown, with the nearest known one."""
    known = [*METHODS, *installed()]
    strangers = [part for pair in splits for part in pair if not is_simple(part)]
    if len(splits) != 1 or len(strangers) != 1:
        return SettingsError(f"there is no method {name!r}{nearest(name, known)}")
    part = strangers[0]
    return SettingsError(f"there is no method {part!r} to combine in {name!r}{nearest(part, known)}")
