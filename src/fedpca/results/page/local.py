"""Pages for the browsers of this machine alone: a small server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

from fedpca.errors import RunError

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")  # under which browsers of this machine ask; others are another site's doing
JSON = "application/json"


@dataclass(frozen=True)
class Question:
    """What a browser asks."""

    path: str
    query: str
    body: bytes | None = None  # of a POST; None if it is a GET


@dataclass(frozen=True)
class Answer:
    """What it gets."""

    content: bytes | str
    kind: str = "text/plain"
    status: HTTPStatus = HTTPStatus.OK


@contextmanager
def listening(answer: Callable[[Question], Answer], port: int, max_body: int = 0) -> Iterator[str]:
    """Answers browsers of this machine in the background; gives the address.

    What is posted has at most `max_body` bytes and is from a page of this very address; with 0 nothing may be posted.
    """
    try:
        server = ThreadingHTTPServer((HOST, port), partial(_Handler, answer, max_body))
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
    """Hands questions of this machine to a function, and refuses all others."""

    timeout = 30  # seconds in which a question must be complete: nobody holds a thread for ever

    def __init__(self, answer: Callable[[Question], Answer], max_body: int, *args: object) -> None:
        self.answer, self.max_body = answer, max_body
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answers one question."""
        self._send(self._refusal() or self._ask(None))

    def do_POST(self) -> None:
        """Answers one question that brings something."""
        refused = self._refusal() or self._refusal_of_post()
        if refused:
            self.close_connection = True  # what was posted has not been read
        self._send(refused or self._ask(self.rfile.read(int(self.headers["Content-Length"]))))

    def _ask(self, body: bytes | None) -> Answer:
        asked = urlsplit(self.path)
        return self.answer(Question(asked.path, asked.query, body))

    def _refusal(self) -> Answer | None:
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        return None if host in HOSTS else _refuse(f"this page is for {HOST} alone, not for {host}")

    def _refusal_of_post(self) -> Answer | None:
        """Another page in the same browser must not write here, nor anybody send without end."""
        port, length = self.connection.getsockname()[1], self.headers.get("Content-Length", "")
        if not self.max_body:
            return _refuse("nothing can be sent to this page", HTTPStatus.METHOD_NOT_ALLOWED)
        if self.headers.get("Origin") not in [f"http://{host}:{port}" for host in HOSTS]:
            return _refuse("this was not sent by the page itself")
        if self.headers.get("Content-Type", "").partition(";")[0].strip() != JSON:
            return _refuse(f"this must be {JSON}", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if not (length.isascii() and length.isdigit()):
            return _refuse("the length of what is sent must be said", HTTPStatus.LENGTH_REQUIRED)
        too_long = int(length[:9]) > self.max_body or len(length) > 9
        return _refuse(f"at most {self.max_body} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE) if too_long else None

    def _send(self, answer: Answer) -> None:
        with suppress(ConnectionError):  # a browser that was closed meanwhile
            self._write(answer)

    def _write(self, answer: Answer) -> None:
        content = answer.content.encode() if isinstance(answer.content, str) else answer.content
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind if isinstance(answer.content, bytes) else _in_utf8(answer.kind))
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing: the terminal is for what a person must know."""


def _refuse(text: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> Answer:
    return Answer(text, status=status)


def _in_utf8(kind: str) -> str:
    return f"{kind}; charset=utf-8"
