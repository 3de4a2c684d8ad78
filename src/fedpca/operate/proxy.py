"""The server's reverse proxy: passes on what sites need of Flower, and nothing else.

Flower answers sites, operators and its own processes on one port, and asks only sites for a key: whoever reaches that
port may start a run, which is code that every site executes. So Flower listens on loopback, and this in its place.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import create_default_context

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fedpca.operate.connection import Connection, SlowError, timely

FOR_SITES = re.compile(rb"/v1/fleet/[a-z-]+")
PER_CONNECTION = set(b"host connection keep-alive transfer-encoding te trailer upgrade date server".split())
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]

MAX_BODY = 32 << 20  # bytes of a request: Flower sends arrays in pieces of 5 MiB
MAX_BODIES = 512 << 20  # bytes of all requests under way: Flower holds each until it is whole, whoever sent it
MAX_CONNECTIONS = 1000


@dataclass
class Bodies:
    """How many bytes of requests are under way; Flower asks for a key only when it has all of one."""

    most: int
    taken: int = 0

    def take(self, count: int) -> bool:
        """Makes room for so many bytes; False if there is none."""
        if self.taken + count > self.most:
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        """These bytes are no longer under way."""
        self.taken -= count


class TooLargeError(Exception):
    """A body grew beyond its limit."""


class BusyError(Exception):
    """All requests under way together grew beyond their limit."""


def reverse_proxy(flower: str, ca: str | None) -> Starlette:
    """An application that stands before Flower at that address."""
    verify = create_default_context(cafile=ca) if ca else False
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)  # sooner than Flower closes a connection
    client = httpx.AsyncClient(base_url=flower, verify=verify, limits=limits, timeout=60, trust_env=False)
    bodies = Bodies(MAX_BODIES)

    async def answer(request: Request) -> Response:
        if refusal := _refusal(request):
            return refusal
        body = Body(request, bodies)
        try:
            return await passed_on(request, body)
        except TooLargeError:
            return _too_large(request)
        except BusyError:
            return Response("the server is busy: try again\n", 503)
        except (SlowError, ClientDisconnect):
            return Response("the request did not come in time\n", 408)
        finally:
            bodies.give_back(body.count)

    async def passed_on(request: Request, body: Body) -> Response:
        headers = [(name, value) for name, value in request.headers.raw if name not in PER_CONNECTION]
        try:
            passed = client.build_request("POST", request.url.path, headers=headers, content=body.parts())
            reply = await client.send(passed, stream=True)
        except httpx.TransportError as error:
            print(f"Flower does not answer: {error!r:.200}", flush=True)
            return Response("the server is starting or stopping\n", 503)
        kept = {name: value for name, value in reply.headers.items() if name.encode() not in PER_CONNECTION}
        return StreamingResponse(reply.aiter_raw(), reply.status_code, kept, background=BackgroundTask(reply.aclose))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    return Starlette(routes=[Route("/{path:path}", answer, methods=METHODS)], lifespan=lifespan)


def declared_size(request: Request) -> int:
    """Bytes that a request says it has; the limit if it does not say, and more if what it says is no number."""
    said = request.headers.get("content-length")
    if said is None:
        return MAX_BODY
    return int(said) if said.isdecimal() and len(said) < 20 else MAX_BODY + 1


@dataclass
class Body:
    """A request's body; what has come of it is under way, what was only announced is not."""

    request: Request
    bodies: Bodies
    count: int = 0

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, until it is longer than any site's, or comes too slowly, or there is no more room."""
        async for part in timely(self.request):
            if self.count + len(part) > MAX_BODY:
                raise TooLargeError
            if not self.bodies.take(len(part)):
                raise BusyError
            self.count += len(part)
            yield part


def _refusal(request: Request) -> Response | None:
    """What there is to say to a request before a byte of its body is read; None if it may go on."""
    if not _is_for_sites(request):
        who = request.client.host if request.client else "?"
        print(f"refused {request.method:.8} {request.url.path!r:.80} from {who}", flush=True)
        return Response("this port is for sites; runs are started on the server's machine\n", 403)
    if {"content-length", "transfer-encoding"} <= {*request.headers}:  # two servers may read it as two requests
        return Response("a request must say in one way how long it is\n", 400)
    return _too_large(request) if declared_size(request) > MAX_BODY else None


def _too_large(request: Request) -> Response:
    who = request.client.host if request.client else "?"
    print(f"refused a request of more than {MAX_BODY} bytes from {who}", flush=True)
    return Response(f"a request must have at most {MAX_BODY} bytes\n", 413)


def _is_for_sites(request: Request) -> bool:
    """A path as sites send it, letter by letter: nothing encoded, no dots, no query."""
    raw = request.scope.get("raw_path", b"")
    return request.method == "POST" and bool(FOR_SITES.fullmatch(raw)) and not request.scope["query_string"]


def more_files() -> None:
    """Lets this process have as many open files as it may: each request needs two."""
    try:
        from resource import RLIMIT_NOFILE, getrlimit, setrlimit
    except ImportError:  # Windows
        return
    setrlimit(RLIMIT_NOFILE, (getrlimit(RLIMIT_NOFILE)[1], getrlimit(RLIMIT_NOFILE)[1]))


def main() -> None:
    """Serves until it is told to end."""
    parser = ArgumentParser(prog="python -m fedpca.operate.proxy")
    for option in ("--host", "--flower", "--ca", "--certificate", "--key"):
        parser.add_argument(option)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    more_files()
    uvicorn.run(
        reverse_proxy(given.flower, given.ca),
        host=given.host,
        port=given.port,
        ssl_certfile=given.certificate,
        ssl_keyfile=given.key,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=30,
        limit_concurrency=MAX_CONNECTIONS,
        http=Connection,
        ws="none",
        timeout_graceful_shutdown=2,
    )


if __name__ == "__main__":
    main()
