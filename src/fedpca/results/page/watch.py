"""The page of runs, under way or finished, served to this machine alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

from fedpca.errors import RunError
from fedpca.results.page.feed import FolderState, RunFeed, answer
from fedpca.results.page.page import waiting_page, write_page

HOST = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")  # under which browsers of this machine ask; others are another site's doing


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
    with _listening(feed, port) as address:
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


@contextmanager
def _listening(feed: RunFeed, port: int) -> Iterator[str]:
    """Answers browsers of this machine in the background; gives the address."""
    try:
        server = ThreadingHTTPServer((HOST, port), partial(_Handler, feed))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"port {port} cannot be used ({reason}): choose another --port; 0 takes a free one") from None
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Two addresses: the page, and what is new."""

    def __init__(self, feed: RunFeed, *args: object) -> None:
        self.feed = feed
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answers one question."""
        asked = urlsplit(self.path)
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in HOSTS:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", f"this page is for {HOST} alone, not for {host}")
        elif asked.path not in ("/", "/new"):
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is only / and /new")
        else:
            try:
                self._answer(self.feed.state(), asked)
            except RunError as error:
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", str(error))

    def _answer(self, state: FolderState, asked: SplitResult) -> None:
        if asked.path == "/new":
            self._send(HTTPStatus.OK, "application/json", json.dumps(answer(state, asked.query), allow_nan=False))
        else:
            page = write_page(state.runs, live=True) if state.runs else waiting_page(self.feed.folder)
            self._send(HTTPStatus.OK, "text/html", page)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        with suppress(ConnectionError):  # a browser that was closed meanwhile
            self._write(status, kind, text.encode())

    def _write(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing: the terminal is for what a person must know."""
