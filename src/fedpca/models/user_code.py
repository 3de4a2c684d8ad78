"""What goes wrong in a user's own code is told in one message, with the lines of the user's own files alone."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fedpca.errors import UserError, failure_of

FRAMES = 3  # of the user's own, in a message
PACKAGE, PYTORCH = "fedpca", "torch"
LIBRARIES = (PACKAGE, PYTORCH, "numpy", "scipy", "sklearn")  # whose frames tell a user nothing
INSTALLED = {"site-packages", "dist-packages"}  # may lie inside the folder of Python's own library


@contextmanager
def trying(what: str, is_users: Callable[[Exception], bool] | None = None) -> Iterator[None]:
    """An exception inside becomes one message: what was tried, where it failed in the user's files, and why.

    With `is_users` only those for which it holds; others, such as errors of this package, keep their whole trace.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if failure_of(error) or not (is_users is None or is_users(error)):
            raise
        raise UserError(f"{what} failed: {short_trace(error)}") from error


def short_trace(error: Exception) -> str:
    """The exception, and the last lines of the user's own files on the way to it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    why = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([why, *map(str.rstrip, traceback.format_list(frames[-FRAMES:]))])


def is_users_error(error: Exception, own_model: bool = False) -> bool:
    """Whether a user's own code raised an exception, and not this package.

    It did if this package called it last. Where the model is the user's own, PyTorch says what is wrong with it too: in
    a backward pass, or in a loss, none of the user's files are on the way to the exception.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = [at for at, name in enumerate(files) if _is_of(PACKAGE, name)]
    called = files[ours[-1] + 1 :] if ours else files
    return any(_is_theirs(name) or (own_model and _is_of(PYTORCH, name)) for name in called)


def _is_theirs(filename: str) -> bool:
    """Whether a file is neither of a library nor of Python itself."""
    if filename.startswith("<frozen") or any(_is_of(library, filename) for library in LIBRARIES):
        return False
    path = Path(filename)
    return Path(sysconfig.get_path("stdlib")) not in path.parents or not INSTALLED.isdisjoint(path.parts)


def _is_of(library: str, filename: str) -> bool:
    return _folder_of(library) in Path(filename).parents


@cache
def _folder_of(library: str) -> Path:
    spec = find_spec(library)
    return Path(spec.origin if spec and spec.origin else library).parent
