"""The server's reverse proxy: passes on what sites need of Flower, and nothing else.

Flower answers sites, operators and its own processes on one port, and asks only sites for a key: whoever reaches that
port may start a run, which is code that every site executes. So Flower listens on loopback, and this in its place.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import create_default_context

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

FOR_SITES = re.compile(rb"/v1/fleet/[a-z-]+")
PER_CONNECTION = set(b"host connection keep-alive transfer-encoding te trailer upgrade date server".split())
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]


def reverse_proxy(flower: str, ca: str | None) -> Starlette:
    """An application that stands before Flower at that address."""
    verify = create_default_context(cafile=ca) if ca else False
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)  # sooner than Flower closes a connection
    client = httpx.AsyncClient(base_url=flower, verify=verify, limits=limits, timeout=60, trust_env=False)

    async def answer(request: Request) -> Response:
        if not _is_for_sites(request):
            who = request.client.host if request.client else "?"
            print(f"refused {request.method:.8} {request.url.path!r:.80} from {who}", flush=True)
            return Response("this port is for sites; runs are started on the server's machine\n", 403)
        headers = [(name, value) for name, value in request.headers.raw if name not in PER_CONNECTION]
        try:
            passed = client.build_request("POST", request.url.path, headers=headers, content=request.stream())
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


def _is_for_sites(request: Request) -> bool:
    """A path as sites send it, letter by letter: nothing encoded, no dots, no query."""
    raw = request.scope.get("raw_path", b"")
    return request.method == "POST" and bool(FOR_SITES.fullmatch(raw)) and not request.scope["query_string"]


def main() -> None:
    """Serves until it is told to end."""
    parser = ArgumentParser(prog="python -m fedpca.operate.proxy")
    for option in ("--host", "--flower", "--ca", "--certificate", "--key"):
        parser.add_argument(option)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
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
        timeout_graceful_shutdown=2,
    )


if __name__ == "__main__":
    main()
