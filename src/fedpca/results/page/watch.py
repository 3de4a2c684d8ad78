"""The page of runs, under way or finished, served to this machine alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

from fedpca.errors import RunError
from fedpca.results.page.feed import FolderState, RunFeed, answer
from fedpca.results.page.local import JSON, Answer, Question, listening
from fedpca.results.page.page import waiting_page, write_page


def serve(
    folder: Path,
    port: int,
    log: Callable[[str], None],
    poll_seconds: float = 1.0,
    end_seconds: float = 5.0,
    stall_seconds: float = 60.0,
) -> None:
    """Serves the page until all rounds of all runs below the folder are there; port 0 takes a free one.

    Runs that were all finished before are served until Ctrl-C. For `end_seconds` after the last round the next run may
    begin, and browsers fetch the end. After `stall_seconds` without a new round the page says so.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: name the folder of a run, or one that holds runs")
    feed = RunFeed(folder, stall_seconds)
    found = feed.state()
    with listening(partial(_answer, feed), port) as address:
        _announce(address, folder, found, log)
        if found.is_done:
            _wait_for_interrupt(poll_seconds)
        _wait_for_end(feed, poll_seconds, end_seconds)
    log(f"finished; `fedpca results {folder} --html page.html` writes the page as one file")


def _announce(address: str, folder: Path, found: FolderState, log: Callable[[str], None]) -> None:
    """Says what is served, and what is not."""
    state = "; its runs are finished" if found.is_done else " while its runs go on"
    log(f"{address} shows {folder}{state}; Ctrl-C stops")
    for error in found.errors:
        log(f"passed over: {error}")
    if not found.runs:
        log(f"waiting for the first round in {folder}" + " (there is no such folder yet)" * (not folder.exists()))


def _wait_for_interrupt(poll_seconds: float) -> NoReturn:
    while True:
        time.sleep(poll_seconds)


def _wait_for_end(feed: RunFeed, poll_seconds: float, end_seconds: float) -> None:
    """Returns when everything has been finished for so many seconds."""
    since: float | None = None
    while since is None or time.monotonic() - since < end_seconds:
        time.sleep(poll_seconds)
        since = (since or time.monotonic()) if feed.state().is_done else None


def _answer(feed: RunFeed, asked: Question) -> Answer:
    """One of two addresses: the page, and what is new."""
    if asked.path not in ("/", "/new"):
        return Answer("there is only / and /new", status=HTTPStatus.NOT_FOUND)
    try:
        state = feed.state()
    except RunError as error:
        return Answer(str(error), status=HTTPStatus.INTERNAL_SERVER_ERROR)
    if asked.path == "/new":
        return Answer(json.dumps(answer(state, asked.query), allow_nan=False), JSON)
    return Answer(write_page(state.runs, live=True) if state.runs else waiting_page(feed.folder), "text/html")
