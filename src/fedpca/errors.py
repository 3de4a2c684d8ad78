"""Faults that the user can mend: shown as one message, without a trace."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """The message names the thing, what was required, what came, and the remedy."""


class SettingsError(UserError):
    """Settings that cannot be used."""


class DataError(UserError):
    """Data that cannot be used."""


class RunError(UserError):
    """A run folder that cannot be written, continued or read."""


class WireError(UserError):
    """A message between server and client that cannot be used."""


def nearest(word: str, words: Iterable[str]) -> str:
    """ " (did you mean …?)" where something is near, else what there is."""
    known = list(words)
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f"; there are {', '.join(known)}" if known else ""
