"""The review page, served to this machine alone, under an address that nobody can guess."""

from __future__ import annotations

import json
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from secrets import compare_digest, token_urlsafe

from fedpca.atomic import locked
from fedpca.auditing.pages.review_page import Review, review_html
from fedpca.errors import UserError
from fedpca.results.page.local import JSON, Answer, Question, listening

MAX_BODY = 8192  # bytes of one decision


def serve_review(folder: Path, port: int = 0, open_browser: bool = True, log: Callable[[str], None] = print) -> None:
    """Serves the review page of a site's folder until Ctrl-C; port 0 takes a free one."""
    with reviewing(folder, port) as address:
        log(f"{address} shows the labels of {folder}; each decision is saved at once; Ctrl-C stops")
        if open_browser:
            webbrowser.open(address)
        while True:
            time.sleep(1)


@contextmanager
def reviewing(folder: Path, port: int = 0) -> Iterator[str]:
    """Serves the review page in the background; gives its address."""
    token = token_urlsafe(24)
    review = Review(folder)
    refusal = f"another process reads the labels of {folder} again: use its page, or stop it"
    with locked(folder, refusal), listening(partial(answer, review, token), port, MAX_BODY) as address:
        yield f"{address}{token}/"


@dataclass(frozen=True)
class Decision:
    """What the page sends."""

    row: int
    label: str


def answer(review: Review, token: str, asked: Question) -> Answer:
    """The page, its rows, an image, or what a decision led to; whoever does not know the token finds nothing."""
    _, given, *rest = [*asked.path.split("/"), "", ""]
    if not compare_digest(given.encode(), token.encode()):
        return Answer("there is nothing here", status=HTTPStatus.NOT_FOUND)
    try:
        return _post(review, rest, asked.body) if asked.body is not None else _get(review, rest)
    except UserError as error:
        return Answer(str(error), status=HTTPStatus.CONFLICT)
    except OSError as error:
        return Answer(f"suspects.csv cannot be written ({error.strerror})", status=HTTPStatus.INTERNAL_SERVER_ERROR)


def _get(review: Review, path: list[str]) -> Answer:
    match path:
        case ["", *_]:
            return Answer(review_html(review.site), "text/html")
        case ["state", *_]:
            return Answer(json.dumps(review.state(), allow_nan=False), JSON)
        case ["images", name, *_] if (png := review.image(name)) is not None:
            return Answer(png, "image/png")
    return Answer("there is nothing here", status=HTTPStatus.NOT_FOUND)


def _post(review: Review, path: list[str], body: bytes) -> Answer:
    if path[0] != "decide":
        return Answer("there is nothing here", status=HTTPStatus.NOT_FOUND)
    decision = _decision(body)
    if decision is None:
        return Answer("a decision has a row and a label", status=HTTPStatus.BAD_REQUEST)
    return Answer(json.dumps({"reviewed": review.decide(decision.row, decision.label)}), JSON)


def _decision(body: bytes) -> Decision | None:
    try:
        sent = json.loads(body)
        row, label = sent["row"], sent["label"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_sound = isinstance(row, int) and not isinstance(row, bool) and isinstance(label, str)
    return Decision(row, label) if is_sound else None
