"""Things that a settings file may name: those of the package, those that other packages offer, and `package:name`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from fedpca.errors import SettingsError, nearest

Thing = TypeVar("Thing")
PLACE = re.compile(r"[\w.]+:\w+")  # package.module:name


@dataclass(frozen=True)
class Registry(Generic[Thing]):
    """All things of one kind by name; `package.module:name` names one that nobody registered."""

    kind: str  # what messages call one of them: method, metric, …
    type: type[Thing]
    own: Mapping[str, Thing]  # the package's own, in the order in which they are listed
    group: str = field(default="", kw_only=True)  # of the entry points by which installed packages add theirs
    remedy: str = field(default="", kw_only=True)  # how a plain function becomes one of them

    def __iter__(self) -> Iterator[str]:
        """The names: the package's own, then those of installed packages."""
        return iter(dict.fromkeys((*self.own, *installed(self.group))))

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in installed(self.group)

    def __getitem__(self, name: str) -> Thing:
        """The thing of this name; an error says what is near, or what is wrong with the module."""
        if name in self.own:
            return self.own[name]
        place = installed(self.group).get(name, name)
        if not PLACE.fullmatch(place):
            raise SettingsError(f"there is no {self.kind} {name!r}{nearest(name, self)}")
        found = import_object(place, self.kind)
        if not isinstance(found, self.type):
            wanted, got = f"fedpca.{self.type.__name__}", type(found).__name__
            raise SettingsError(
                f"{self.kind} {name!r} must be a {wanted}, got {got}{self.remedy if callable(found) else ''}"
            )
        return found


@cache
def installed(group: str) -> dict[str, str]:
    """What installed packages offer under a group of entry points: name -> package.module:name."""
    return {point.name: point.value for point in entry_points(group=group)} if group else {}


def import_object(place: str, kind: str) -> object:
    """What `package.module:name` stands for."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise SettingsError(f"{kind} {place!r}: the module {module!r} cannot be imported: {error}") from None
    except AttributeError:
        raise SettingsError(f"{kind} {place!r}: the module {module!r} has no {name!r}") from None
