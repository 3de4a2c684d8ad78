"""A method's name taken apart: `A`, `A+B`, `A+d`, `A+B+d`, where A and B may be `package.module:name`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fedpca.errors import SettingsError, nearest

DROP = "+d"  # behind a name: without the clients that FedPCA judges mislabeled


class MethodName(NamedTuple):
    """One method or two, and whether FedPCA's dropping is added."""

    simple: tuple[str, ...]
    drops: bool

    def tables(self) -> Iterator[str]:
        """The settings tables that belong to it: those of its methods, of their combination, of the dropping."""
        yield from dict.fromkeys(self.simple)
        if len(self.simple) > 1:
            yield "+".join(self.simple)
        if self.drops:
            yield "+".join(self.simple) + DROP


def parse_name(name: str, is_simple: Callable[[str], bool], known: Iterable[str]) -> MethodName:
    """The name taken apart; an error says which part nobody knows, and which of the known ones is near."""
    body = name.removesuffix(DROP)
    splits = [(body[:i], body[i + 1 :]) for i, sign in enumerate(body) if sign == "+"]
    for simple in ((body,), *splits):
        if all(map(is_simple, simple)):
            return MethodName(simple, drops=body != name)
    strangers = [part for pair in splits for part in pair if not is_simple(part)]
    if len(splits) != 1 or len(strangers) != 1:
        raise SettingsError(f"there is no method {name!r}{nearest(name, known)}")
    part = strangers[0]
    raise SettingsError(f"there is no method {part!r} to combine in {name!r}{nearest(part, known)}")
