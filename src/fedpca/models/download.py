"""Files from the network, whole and checked or not at all, and the user's folder for what can be had again."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

from fedpca.atomic import to_disk

Progress = Callable[[int, int], None]  # called with how much of how much is done
TIMEOUT = 30  # seconds without a byte


def download(url: str, path: Path, check: Callable[[Path], None], progress: Progress) -> None:
    """Fetches a file; one that breaks off, or that `check` refuses with an OSError, leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with urlopen(Request(url, headers={"User-Agent": "fedpca"}), timeout=TIMEOUT) as answer:
            total = int(answer.headers.get("Content-Length") or 0)
            with partial.open("wb") as file:
                while chunk := answer.read(1 << 20):
                    file.write(chunk)
                    progress(file.tell(), max(total, file.tell()))
                to_disk(file)
        if total and (size := partial.stat().st_size) != total:
            raise OSError(f"it broke off after {size} of {total} bytes")
        check(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def user_folder(kind: str) -> Path:
    """Where things that can be had again are kept for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpca" / kind
