"""Reading labels again: what the page is told of each row, in which order, and how a decision is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape
from pathlib import Path
from threading import Lock
from typing import Any

from fedpca.auditing.pages.pieces import own_asset, style
from fedpca.auditing.suspects import FILE, Suspect, read_suspects, write_suspects
from fedpca.errors import DataError
from fedpca.results.page.frame import asset, fill

SCRIPTS = ("review.js", "keys.js")


def review_html(site: Mapping[str, Any]) -> str:
    """The page, which asks its server for the rows."""
    script = "\n".join((asset("theme.js"), *map(own_asset, SCRIPTS)))
    return fill(own_asset("review.html"), style("review.css"), script, served=True, title=escape(str(site["client"])))


class Review:
    """The labels of one site while they are read again; every decision is in suspects.csv before it is answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = read_site(folder)
        self.classes = [str(name) for name in self.site["classes"]]
        self._one_at_a_time = Lock()  # tabs of one browser, and threads of the server
        self._rows = {own.row for own in self._read()}

    def state(self) -> dict[str, Any]:
        """Everything that the page may know."""
        items = [self._item(own) for own in in_order(self._read())]
        return {"client": str(self.site["client"]), "classes": self.classes, "items": items}

    def decide(self, row: int, label: str) -> dict[str, str]:
        """Keeps what was read of one row, the empty text taking it back; all that is read by now, by row."""
        with self._one_at_a_time:
            suspects = self._read()
            places = [i for i, own in enumerate(suspects) if own.row == row]
            if not places:
                raise DataError(f"row {row} is not in {self.folder / FILE}: reload the page")
            own = suspects[places[0]]
            if label not in ("", own.given, *self.classes):
                raise DataError(f"{label!r} is no class: there are {', '.join(self.classes)}")
            suspects[places[0]] = replace(own, reviewed=label)
            write_suspects(self.folder / FILE, suspects)
        return {str(other.row): other.reviewed for other in suspects if other.reviewed}

    def image(self, name: str) -> bytes | None:
        """The image with this name, if it is one of this site's rows; no other file can be asked for."""
        row = name.removesuffix(".png")
        if not (name.endswith(".png") and row.isascii() and row.isdigit() and str(int(row[:12])) == row):
            return None
        path = self._image_path(int(row))
        return path.read_bytes() if int(row) in self._rows and path else None

    def _image_path(self, row: int) -> Path | None:
        """The image of a row; none if there is none, or if it is a link that leads out of the folder."""
        images = self.folder / "images"
        path = images / f"{row}.png"
        inside = path.is_file() and path.resolve().parent == images.resolve()
        return path if inside else None

    def _read(self) -> list[Suspect]:
        return read_suspects(self.folder / FILE)

    def _item(self, own: Suspect) -> dict[str, Any]:
        """One row; of the sample nothing is told that could lead the reader, such as what the model predicts."""
        told: dict[str, Any] = {
            "row": own.row,
            "path": own.path,
            "given": own.given,
            "reviewed": own.reviewed,
            "part": "sample" if own.in_sample else "list",
            "image": self._image_path(own.row) is not None,
            "columns": [list(column) for column in own.columns],
        }
        hint = {"likely": own.predicted, "score": own.score, "p_value": own.p_value}
        return told if own.in_sample else told | hint


def in_order(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The sample first, in an order that says nothing of how doubtful its rows are; then the list, worst first."""
    sample = sorted((own for own in suspects if own.in_sample), key=lambda own: sha256(b"%d" % own.row).digest())
    listed = sorted((own for own in suspects if own.is_issue and not own.in_sample), key=lambda own: own.score)
    return sample + listed


def read_site(folder: Path) -> dict[str, Any]:
    """What site.json says."""
    path = folder / "site.json"
    try:
        site = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(site["classes"], list) and site["classes"] and "client" in site):
            raise KeyError("client and classes")
    except FileNotFoundError:
        raise DataError(f"there is no {path}: give the folder of a site, which `fedpca audit` has written") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}): let `fedpca audit` write it again") from None
    return dict(site)
