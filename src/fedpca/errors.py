"""Errors that the user can fix: shown as one message, without a trace."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from errno import EACCES, EDQUOT, EFBIG, EIO, EISDIR, ELOOP, EMFILE, ENAMETOOLONG, ENOSPC, ENOTDIR, EPERM, EROFS

NEAR = 0.75  # how alike two words are, from 0 to 1, for one to be taken for the other: fedadam is not fedavg
NO_MEMORY = re.compile(r"(?i)out of memory|not enough memory|(can't|cannot) allocate memory")
ASKED = re.compile(r"(?i)(?:tried|unable) to allocate ([\d.]+) ?([KMGTP]?i?B\b|bytes)")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # ends a line, or turns its direction
MAX_MESSAGE = 10_000  # characters: names and values in it may be somebody else's
REMEDIES = {  # of what a system refuses
    EACCES: "let this user read and write it, or choose another place",
    EPERM: "let this user read and write it, or choose another place",
    ENAMETOOLONG: "choose a shorter name",
    EISDIR: "it must be a file",
    ENOTDIR: "a part of this path is a file, and must be a folder",
    ELOOP: "its links lead in a circle: remove them",
    EIO: "check the disk",
    EFBIG: "raise the limit of a file's size (ulimit -f)",
    EMFILE: "raise the limit of open files (ulimit -n), or use fewer --workers or --jobs",
}
LESS_MEMORY = "a smaller training.batch or data.image_size, a smaller model, or fewer --workers or --jobs need less"


class UserError(ValueError):
    """The message names the thing, what was required, what it got, and the remedy; without control characters."""

    code = 2  # the exit code: wrong usage or settings

    def __init__(self, message: object = "") -> None:
        super().__init__("\n".join(printable(line, MAX_MESSAGE) for line in str(message)[:MAX_MESSAGE].split("\n")))


class SettingsError(UserError):
    """Settings that cannot be used."""


class DataError(UserError):
    """Data that cannot be used, in one line: a name in them may have another in it."""

    def __init__(self, message: object = "") -> None:
        super().__init__(str(message).replace("\n", " "))


class RunError(UserError):
    """A run folder that cannot be written, continued or read."""


class FailedError(RunError):
    """A run that could not be played as asked, though nothing was wrong with its settings."""

    code = 1


class WireError(DataError):
    """A message between server and client that cannot be used."""


def require_plain(names: Iterable[str], what: str) -> None:
    """Refuses names from data that could forge lines on a screen, or turn around what follows them."""
    for name in names:
        if CONTROL.search(name):
            raise DataError(f"{what} {name!r:.200} has control characters in it: rename it")


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
    """What a person can do about an exception that is not a bug: no memory, a full disk, a wrong place; else None."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and NO_MEMORY.search(str(error))):
        return FailedError(f"out of memory{_asked_for(str(error))}: {LESS_MEMORY}")
    if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT, EROFS):
        place = f" to {error.filename}" if error.filename else ""
        return FailedError(f"nothing more can be written{place} ({error.strerror}): make room, then --resume goes on")
    if isinstance(error, OSError) and error.errno in REMEDIES:
        place = f"{error.filename!s:.200}: " if error.filename else ""
        return FailedError(f"{place}{error.strerror}: {REMEDIES[error.errno]}")
    return None


def _asked_for(message: str) -> str:
    """The size that could not be had, where the message of PyTorch or NumPy tells it."""
    found = ASKED.search(message)
    if found is None:
        return ""
    number, unit = found.groups()
    return f", {float(number) / 2**30:.1f} GiB were asked for" if unit == "bytes" else f", {number} {unit} asked for"
