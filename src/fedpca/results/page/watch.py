"""The page of runs that are under way, served to this machine alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import SplitResult, parse_qs, urlsplit

from fedpca.errors import RunError
from fedpca.results.page.data import key, news
from fedpca.results.page.page import in_order, parts, waiting_page, write_page
from fedpca.results.page.words import counted, listed
from fedpca.results.read.runs import Run, with_differences
from fedpca.results.read.tail import Tail

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")  # under which browsers of this machine ask; others are another site's doing
Tell = Callable[[str], None]


def serve(folder: Path, port: int, tell: Tell, every: float = 1.0, grace: float = 5.0, patience: float = 60.0) -> None:
    """Serves the page until all rounds of all runs below the folder are there; port 0 takes a free one.

    The folder is looked at `every` so many seconds. For `grace` seconds after the last round the next run may begin,
    and browsers fetch the end. After `patience` seconds without a new round the page says that nothing moves.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: name the folder of a run, or one that holds runs")
    feed = Feed(folder, patience)
    if feed.look().done:
        tell(f"all runs in {folder} are finished; `fedpca results {folder} --html page.html` writes their page")
        return
    with _listening(feed, port) as address:
        tell(f"{address} shows {folder} while its runs go on; Ctrl-C stops")
        if not feed.look().runs:
            tell(f"waiting for the first round in {folder}" + " (there is no such folder yet)" * (not folder.exists()))
        _until_done(feed, every, grace)
    tell(f"finished; `fedpca results {folder} --html page.html` writes the page as one file")


def _until_done(feed: Feed, every: float, grace: float) -> None:
    """Returns when everything has been finished for so many seconds."""
    since: float | None = None
    while since is None or time.monotonic() - since < grace:
        time.sleep(every)
        since = (since or time.monotonic()) if feed.look().done else None


@dataclass(frozen=True)
class Look:
    """What a folder held at one moment."""

    runs: list[Run]  # those that have played a round, in the page's order
    state: str  # in words
    done: bool


@dataclass
class Feed:
    """The runs below a folder as they grow."""

    folder: Path
    patience: float
    tails: dict[Path, Tail] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)  # browsers ask from threads of their own

    def look(self) -> Look:
        """The runs as they are now; reads what is new."""
        with self.lock:
            there = [path.parent for path in sorted(self.folder.rglob("settings.toml")) if _is_run(path.parent)]
            self.tails = {path: self.tails.get(path) or Tail(path) for path in there}
            runs = in_order(with_differences([run for tail in self.tails.values() if (run := tail.read()).rounds]))
            quiet = min((self.tails[run.folder].quiet() for run in runs if not run.is_done), default=0.0)
        return Look(runs, _in_words(runs, quiet, self.patience), bool(runs) and all(run.is_done for run in runs))


def _is_run(folder: Path) -> bool:
    return (folder / "rounds.jsonl").exists() and (folder / "about.json").exists()


def _in_words(runs: list[Run], quiet: float, patience: float) -> str:
    going = [run for run in runs if not run.is_done]
    if not runs:
        return "Waiting for the first round."
    if not going:
        return f"Finished: {counted(len(runs), 'run')}. This page no longer changes."
    names = [f"{run.label()}, seed {run.seed} (round {len(run.rounds)} of {run.settings.rounds})" for run in going]
    longest = max(line.get("seconds") or 0.0 for run in going for line in run.rounds)
    if quiet > max(patience, 5 * longest):
        minutes = counted(round(quiet / 60), "minute") if quiet >= 60 else counted(round(quiet), "second")
        return f"No new round for {minutes}: {listed(names, 4)}."
    finished = f" Finished: {counted(len(runs) - len(going), 'run')}." if len(going) < len(runs) else ""
    return f"Under way: {listed(names, 4)}.{finished}"


def answer(look: Look, query: str) -> dict[str, object]:
    """What a page that says what it shows (key) and has (rounds of each run) is to be told."""
    asked = parse_qs(query)
    told: dict[str, object] = {"state": look.state, "done": look.done}
    try:
        have = [int(number) for number in asked["have"][0].split(",")]
    except (KeyError, ValueError):
        return {**told, "reload": True}
    played = [len(run.rounds) for run in look.runs]
    if asked.get("key") != [key(look.runs)] or any(a > b for a, b in zip(have, played, strict=True)):
        return {**told, "reload": True}
    return told if have == played else {**told, "runs": news(look.runs, have), "parts": parts(look.runs)}


@contextmanager
def _listening(feed: Feed, port: int) -> Iterator[str]:
    """Answers browsers of this machine in the background; gives the address."""
    try:
        server = ThreadingHTTPServer((HOST, port), partial(_Answers, feed))
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


class _Answers(BaseHTTPRequestHandler):
    """Two addresses: the page, and what is new."""

    def __init__(self, feed: Feed, *args: object) -> None:
        self.feed = feed
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answers one question."""
        asked = urlsplit(self.path)
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in NAMES:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", f"this page is for {HOST} alone, not for {host}")
        elif asked.path not in ("/", "/new"):
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is only / and /new")
        else:
            try:
                self._tell(self.feed.look(), asked)
            except RunError as error:
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", str(error))

    def _tell(self, look: Look, asked: SplitResult) -> None:
        if asked.path == "/new":
            self._send(HTTPStatus.OK, "application/json", json.dumps(answer(look, asked.query), allow_nan=False))
        else:
            page = write_page(look.runs, live=True) if look.runs else waiting_page(self.feed.folder)
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
