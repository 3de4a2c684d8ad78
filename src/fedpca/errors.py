"""Errors that the user can fix: shown as one message, without a trace."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from errno import EDQUOT, ENOSPC, EROFS

NEAR = 0.75  # how alike two words are, from 0 to 1, for one to be taken for the other: fedadam is not fedavg
NO_MEMORY = re.compile(r"(?i)out of memory|not enough memory|(can't|cannot) allocate memory")
ASKED = re.compile(r"(?i)(?:tried|unable) to allocate ([\d.]+) ?([KMGTP]?i?B\b|bytes)")
LESS_MEMORY = "a smaller training.batch or data.image_size, a smaller model, or fewer --workers or --jobs need less"


class UserError(ValueError):
    """The message names the thing, what was required, what it got, and the remedy."""

    code = 2  # the exit code: wrong usage or settings


class SettingsError(UserError):
    """Settings that cannot be used."""


class DataError(UserError):
    """Data that cannot be used."""


class RunError(UserError):
    """A run folder that cannot be written, continued or read."""


class FailedError(RunError):
    """A run that could not be played as asked, though nothing was wrong with its settings."""

    code = 1


class WireError(UserError):
    """A message between server and client that cannot be used."""


def printable(text: str, most: int = 500) -> str:
    """A text of somebody else in one line: without control characters, which could forge lines on a screen."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:most])


def near(word: str, words: Iterable[str]) -> str | None:
    """The known word that was probably meant: a slip of the pen away, or one that the given word is a part of."""
    lower, known = word.lower(), {one.lower(): one for one in reversed(list(words))}
    close = get_close_matches(lower, known, n=1, cutoff=NEAR)
    whole = [one for one in reversed(known) if len(lower) > 2 and lower in one]
    return next((known[one] for one in (*close, *whole)), None)


def nearest(word: str, words: Iterable[str]) -> str:
    """ " (did you mean …?)" where something is near, else what there is."""
    known = list(words)
    if close := near(word, known):
        return f" (did you mean {close!r}?)"
    return f"; there are {', '.join(known)}" if known else ""


def failure_of(error: BaseException) -> FailedError | None:
    """What a person can do about an exception that is not a bug: memory or a disk that is full; else None."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and NO_MEMORY.search(str(error))):
        return FailedError(f"out of memory{_asked_for(str(error))}: {LESS_MEMORY}")
    if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT, EROFS):
        place = f" to {error.filename}" if error.filename else ""
        return FailedError(f"nothing more can be written{place} ({error.strerror}): make room, then --resume goes on")
    return None


def _asked_for(message: str) -> str:
    """The size that could not be had, where the message of PyTorch or NumPy tells it."""
    found = ASKED.search(message)
    if found is None:
        return ""
    number, unit = found.groups()
    return f", {float(number) / 2**30:.1f} GiB were asked for" if unit == "bytes" else f", {number} {unit} asked for"
