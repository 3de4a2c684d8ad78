"""What a stranger sends to the public port: broken, slow, endless and foreign, to a real process on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

from fedpca.operate.processes import free_port
from studies.fuzz.cases import Door, Target

PATH = b"/v1/fleet/push-object"
PATIENCE, GRACE = 0.3, 0.5  # seconds, in place of 15 and 30
HELD = 4 * PATIENCE + GRACE + 5  # seconds after which a connection that nothing is said on must be closed
MAX_READ = 200_000  # bytes of answers to one case
WHOLE = b"POST " + PATH + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
SERVE = f"""
import sys
from fedpca.operate import connection, proxy
connection.PATIENCE, connection.GRACE = {PATIENCE}, {GRACE}
sys.argv = ["proxy", "--host", "127.0.0.1", "--port", sys.argv[1], "--flower", "http://127.0.0.1:" + sys.argv[2]]
proxy.main()
"""
Script = Sequence[bytes | float]  # what is sent, and seconds of silence between


class Flower(BaseHTTPRequestHandler):
    """In place of Flower: takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Reads a body, by its length or by its chunks."""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        else:
            self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"taken")

    def log_message(self, *words: object) -> None:
        """Nothing."""


class Quiet(ThreadingHTTPServer):
    """A sender that goes away is no error here."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing."""


@contextmanager
def opened(folder: Path) -> Iterator[Door]:
    """The proxy as a process with little patience, and something that answers behind it."""
    flower, port, log = Quiet(("127.0.0.1", 0), Flower), free_port(), folder / "log"
    threading.Thread(target=flower.serve_forever, daemon=True).start()
    with log.open("wb") as file:
        command = [sys.executable, "-c", SERVE, str(port), str(flower.server_port)]
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        wait_for(port, process, log)
        yield Door(lambda rng: play(rng, port), process.pid, lambda: look_back(port, process, log))
    finally:
        process.terminate()
        process.wait(60)
        flower.shutdown()
        flower.server_close()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the port is open."""
    for _ in range(2400):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise TimeoutError("the port does not open")


def look_back(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """The process is there, still answers, and its log has lines alone."""
    require_answer(port)
    assert process.poll() is None, "it is gone"
    said = log.read_text(encoding="utf-8", errors="replace")
    place = said.find("Traceback")
    assert place < 0, said[max(0, place - 500) : place + 1500]
    assert all(line.isprintable() for line in said.split("\n")), "control characters in the log"


def require_answer(port: int) -> None:
    """A whole request of a site gets through."""
    answer = exchange(port, [WHOLE])
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
    assert answer.endswith(b"taken"), answer[:300]


def play(rng: Random, port: int) -> bool:
    """One stranger; then, now and then, a site."""
    answer = exchange(port, rng.choice(STRANGERS)(rng), early=rng.random() < 0.1)
    if answer:
        assert answer[:5] == b"HTTP/", answer[:300]
        assert not answer.startswith(b"HTTP/1.1 500"), answer[:300]
    if rng.random() < 0.1:
        require_answer(port)
    return answer.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2"))


def exchange(port: int, script: Script, early: bool = False) -> bytes:
    """What is answered until the other side closes the connection; it must, or it is a hang."""
    content = b""
    with socket.create_connection(("127.0.0.1", port), HELD) as own, suppress(ConnectionError):
        for step in script:
            if isinstance(step, bytes):
                own.sendall(step)
            else:
                time.sleep(step)
        if early:
            return b""
        while len(content) < MAX_READ and (part := own.recv(65_536)):
            content += part
    return content


# Strangers


def broken(rng: Random) -> Script:
    """A first line or a head that is none."""
    line = rng.choice(
        (
            b"\r\n\r\n",
            b"GET",
            b"POST  " + PATH + b" HTTP/1.1",
            b"POST " + PATH + b" HTTP/9.9",
            b"POST " + PATH + b"\x00 HTTP/1.1",
            b"\xff\xfe\xfd",
            b"POST http://x:1" + PATH + b" HTTP/1.1",
            b"CONNECT x:443 HTTP/1.1",
            b"OPTIONS * HTTP/1.1",
            b"POST /v1/fleet/../control/x HTTP/1.1",
            b"POST /v1/fleet/%2e%2e/x HTTP/1.1",
            b"POST " + PATH + b"?" + b"q" * 9000 + b" HTTP/1.1",
            b"X" * rng.choice((100, 70_000, 300_000)),
            rng.randbytes(rng.choice((1, 50, 5000))),
        )
    )
    heads = rng.choice(
        (b"Host: a", b"Host: a\r\nHost: b", b"", b": x", b"A\x00: b", b" folded: x", b"Host: \x1b[2J", b"Host")
    )
    return [line + b"\r\n" + heads + b"\r\n\r\n"]


def damaged_request(rng: Random) -> Script:
    """A whole request of which some bytes are others."""
    content = bytearray(WHOLE)
    for _ in range(rng.choice((1, 1, 2, 5))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return [bytes(content)]


def wrong_length(rng: Random) -> Script:
    """A body that is shorter, longer or larger than it says, or says so twice."""
    said = rng.choice(
        (
            b"-1",
            b"many",
            b"9" * 5000,
            b"99999999999",
            b"33554433",
            b"33554432",
            b"1e3",
            b"+2",
            b"0x2",
            b"2, 2",
            b"3",
            b"1",
            b"",
        )
    )
    both = rng.choice(
        (b"", b"", b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n")
    )
    return [b"POST " + PATH + b" HTTP/1.1\r\nHost: a\r\nContent-Length: " + said + b"\r\n" + both + b"\r\nok"]


def chunks(rng: Random) -> Script:
    """Chunks that are none."""
    parts = (
        b"2\r\nok\r\n0\r\n\r\n",
        b"zz\r\n",
        b"-2\r\nok\r\n",
        b"ffffffffffffffffff\r\nx",
        b"2;" + b"e" * 70_000,
        b"2\r\nokk\r\n",
        b"0\r\nX: y\r\n" * 50,
    )
    head = b"POST " + PATH + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: "
    return [
        head
        + rng.choice((b"chunked", b"gzip", b"chunked, chunked", b"Chunked"))
        + b"\r\n\r\n"
        + rng.choice(parts)
        + rng.choice(parts)
    ]


def slow(rng: Random) -> Script:
    """A head or a body in pieces, or the beginning of one."""
    pieces = [WHOLE[at : at + 10] for at in range(0, len(WHOLE), 10)]
    return [
        step for piece in pieces[: rng.randrange(1, len(pieces) + 1)] for step in (piece, rng.choice((0.0, 0.01, 0.1)))
    ]


def heads(rng: Random) -> Script:
    """Heads without end."""
    own = rng.choice((b"X-A: " + b"y" * 1000 + b"\r\n", b"A:\r\n", b"X-A: " + b"z" * 200_000 + b"\r\n"))
    return [b"POST " + PATH + b" HTTP/1.1\r\nHost: a\r\n", own * rng.choice((50, 300)), rng.choice((b"\r\n", b""))]


def pipelined(rng: Random) -> Script:
    """Several requests at once, some of them foreign."""
    alive = WHOLE.replace(b"Connection: close\r\n", b"")
    own = [rng.choice((alive, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", alive[:60])) for _ in range(rng.choice((2, 5, 50)))]
    return [b"".join(own) + rng.choice((WHOLE, b""))]


def foreign(rng: Random) -> Script:
    """Other protocols."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(508)
    two = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        + rng.randbytes(rng.choice((0, 100)))
    )
    upgrade = (
        b"GET "
        + PATH
        + b" HTTP/1.1\r\nHost: a\r\nUpgrade: "
        + rng.choice((b"websocket", b"h2c"))
        + b"\r\nConnection: Upgrade\r\n"
    )
    upgrade += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    return [
        rng.choice(
            (
                hello,
                two,
                upgrade,
                b"\x05\x01\x00",
                b"SSH-2.0-x\r\n",
                b"*1\r\n$4\r\nPING\r\n",
                b"EHLO x\r\n",
                b"\x00" * 2000,
            )
        )
    ]


def large(rng: Random) -> Script:
    """More than a site ever sends."""
    size = rng.choice((1 << 20, 33 << 20))
    return [
        b"POST " + PATH + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size,
        bytes(size),
    ]


def expecting(rng: Random) -> Script:
    """A request that waits for leave, or hides another one."""
    head = b"POST " + PATH + b" HTTP/1.1\r\nHost: a\r\nExpect: " + rng.choice((b"100-continue", b"x")) + b"\r\n"
    inner = rng.choice(
        (b"Content-Length: 2\r\n\r\nok", b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n")
    )
    return [head + b"Connection: close\r\n" + inner + rng.choice((b"", b"GET /admin HTTP/1.1\r\n\r\n"))]


MOST = (broken, damaged_request, wrong_length, chunks, slow, heads, pipelined, foreign, expecting)
STRANGERS: tuple[Callable[[Random], Script], ...] = (*MOST, *MOST, broken, damaged_request, large)
PORT = Target("port", 1_000, 60.0, opened)
