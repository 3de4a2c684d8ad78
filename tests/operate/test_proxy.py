"""What a stranger without a key can send to the public port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedpca.operate import proxy
from fedpca.operate.proxy import reverse_proxy

PATH = "/v1/fleet/push-object"


class Flower:
    """In place of Flower: counts what reaches it."""

    def __init__(self) -> None:
        self.received = 0

    async def answer(self, request: Request) -> Response:
        async for part in request.stream():
            self.received += len(part)
        return Response("taken")

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=["POST"])])


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> Flower:
    """Flower behind the proxy, without a socket."""
    found, real = Flower(), httpx.AsyncClient

    def client(**options: object) -> httpx.AsyncClient:
        return real(transport=httpx.ASGITransport(found.app), base_url="http://flower")

    monkeypatch.setattr(proxy.httpx, "AsyncClient", client)
    monkeypatch.setattr(proxy, "MAX_BODY", 1000)
    monkeypatch.setattr(proxy, "MAX_BODIES", 2500)
    return found


def post(content: bytes | AsyncIterator[bytes], path: str = PATH, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        app = reverse_proxy("http://flower", None)
        async with REAL(transport=httpx.ASGITransport(app), base_url="http://proxy") as client:
            return await client.post(path, content=content, headers=headers)

    return anyio.run(ask)


REAL = httpx.AsyncClient


def test_a_message_of_a_site_gets_through(flower: Flower):
    reply = post(b"x" * 1000)
    assert (reply.status_code, reply.text, flower.received) == (200, "taken", 1000)


def test_a_body_that_says_it_is_too_large_is_refused_before_a_byte_of_it_is_read(flower: Flower):
    reply = post(b"x" * 1001)
    assert reply.status_code == 413
    assert "1000" in reply.text
    assert flower.received == 0


def test_a_body_that_does_not_say_its_size_is_cut_off_at_the_limit(flower: Flower):
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100

    assert post(endless()).status_code == 413
    assert flower.received <= 1000


@pytest.mark.parametrize("size", ["many", "-5", "9" * 5000])
def test_a_size_that_is_no_number_is_refused(flower: Flower, size: str):
    assert post(b"x", **{"content-length": size}).status_code == 413
    assert flower.received == 0


def test_all_bodies_together_are_bounded():
    bodies = proxy.Bodies(most=2500)
    assert bodies.take(1000)
    assert bodies.take(1500)
    assert not bodies.take(1)
    bodies.give_back(1000)
    assert bodies.take(900)
