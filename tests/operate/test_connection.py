"""What a stranger can do to the public port without a whole request: wait, trickle, fill it, hide one in another."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import anyio
import pytest
from starlette.requests import ClientDisconnect, Request

from fedpca.operate import connection, proxy
from fedpca.operate.processes import free_port
from fedpca.operate.proxy import Bodies, Body, BusyError

PATH = "/v1/fleet/push-object"
SERVE = """
import asyncio, sys
from fedpca.operate import connection, proxy
connection.PATIENCE, connection.GRACE, connection.MAX_PER_ADDRESS = 0.3, 0.5, 10
sys.argv = ["proxy", "--host", "127.0.0.1", "--port", sys.argv[1], "--flower", f"http://127.0.0.1:{sys.argv[2]}"]
proxy.main()
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A proxy as a process, before a Flower that says nothing, with little patience."""
    log, port, flower = tmp_path_factory.mktemp("proxy") / "log", free_port(), socket.create_server(("127.0.0.1", 0))
    with log.open("wb") as file:
        command = [sys.executable, "-c", SERVE, str(port), str(flower.getsockname()[1])]
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        end = time.monotonic() + 120
        while not reachable(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        yield port
        assert process.poll() is None, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.terminate()
        process.wait(60)
        flower.close()


def reachable(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def opened(port: int, content: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 60)
    made.sendall(content)
    return made


def said(own: socket.socket) -> bytes:
    """All that is said until the other side closes the connection."""
    content = b""
    try:
        while part := own.recv(65_536):
            content += part
    except ConnectionResetError:
        pass
    own.close()
    return content


def request(*heads: str, body: bytes = b"") -> bytes:
    return "\r\n".join((f"POST {PATH} HTTP/1.1", "Host: a", *heads, "", "")).encode() + body


@pytest.mark.parametrize("begun", [b"", b"POST /v1/fl", b"POST / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n"])
def test_a_connection_without_a_whole_head_is_closed(port: int, begun: bytes):
    assert said(opened(port, begun)) == b""


def test_a_connection_that_was_kept_alive_is_closed_too_if_its_next_head_does_not_come(port: int):
    answers = said(opened(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + b"POST / HTTP"))
    assert answers.startswith(b"HTTP/1.1 403")


def test_a_body_that_does_not_come_is_given_up(port: int):
    assert said(opened(port, request("Content-Length: 1000", body=b"x"))).startswith(b"HTTP/1.1 408")


def test_a_sender_that_goes_away_leaves_no_trace(port: int):
    opened(port, request("Content-Length: 1000", body=b"x")).close()  # the fixture looks into the log
    assert reachable(port)


def test_heads_have_an_end(port: int):
    """What uvicorn takes by default kept as many as came."""
    many = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1000) for number in range(200))
    answer = said(opened(port, f"POST {PATH} HTTP/1.1\r\nHost: a\r\n".encode() + many))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


def test_a_request_that_two_servers_may_read_as_two_is_refused(port: int):
    both = request("Content-Length: 4", "Transfer-Encoding: chunked", "Connection: close", body=b"0\r\n\r\n")
    assert said(opened(port, both)).startswith(b"HTTP/1.1 400")


def test_one_address_has_so_many_connections_and_no_more(port: int):
    held = [opened(port) for _ in range(10)]
    time.sleep(0.1)
    extra = opened(port, request("Content-Length: 0"))
    assert said(extra) == b""
    for own in held:
        own.close()


def body_of(parts: list[bytes], bodies: Bodies, wait: float = 0.0) -> Body:
    async def receive() -> dict[str, object]:
        await anyio.sleep(wait)
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": True}

    return Body(Request({"type": "http", "method": "POST", "headers": []}, receive), bodies)


async def taken(body: Body) -> int:
    return sum([len(part) async for part in body.parts()])


def test_what_was_only_announced_takes_no_room():
    """Sixteen strangers who announced 32 MiB each, and sent nothing, once kept everybody else out."""
    bodies = Bodies(2500)
    body = body_of([b"x" * 1000, b"x" * 1000], bodies)
    with pytest.raises(ClientDisconnect):
        anyio.run(taken, body)
    assert (body.count, bodies.taken) == (2000, 2000)
    with pytest.raises(BusyError):
        anyio.run(taken, body_of([b"x" * 600], bodies))
    assert bodies.taken == 2000


def test_a_body_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "GRACE", 0.2)
    with pytest.raises(connection.SlowError):
        anyio.run(taken, body_of([b"x"] * 1000, Bodies(10**9), wait=0.05))
    assert proxy.MAX_BODY / connection.MIN_RATE > 60  # a site with a slow line has its time
