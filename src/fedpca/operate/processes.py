"""Flower's processes: without its telemetry, update checks and installs, each with a supervisor that ends it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread

from fedpca.atomic import locked
from fedpca.errors import RunError, UserError, printable
from fedpca.operate.supervisor import STOPS

STORE = "store"  # folder in a site's state: what it remembers between messages
EXTRA = "pip install 'fedpca[flower]'"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; Flower's own 1 is waited for twice in every exchange
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}
STARTING = 120.0  # seconds that Flower has to come up; a slow machine needs ten
LOOPBACK = "127.0.0.1"
INSECURE = "would be readable and open to anyone on the network"
MAX_LINE = 2000  # characters of a line that is passed on
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CHATTER = re.compile(r"uvicorn|lifespan|Lifespan|ControlServicer|HTTP API on|Fleet\.Get|^INFO:  |^(INFO :)?\s*$")
PYTHON = [sys.executable, "-P", "-m"]  # -P: whatever lies in the current folder is not imported

Log = Callable[[str], None]
Show = Callable[[str], str | None]  # a line as a person should read it, or None to leave it out


class Child:
    """A process whose lines come out one by one, with a name before each."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], log: Log, show: Show | None = None
    ) -> None:
        self.name, self.last = name, deque[str](maxlen=30)
        self.process = subprocess.Popen(
            [*PYTHON, "fedpca.operate.supervisor", *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches only us, who pass it on
        )
        self.reader = Thread(target=self._read, args=(log, show or without_chatter), daemon=True)
        self.reader.start()

    def _read(self, log: Log, show: Show) -> None:
        for line in self.process.stdout or ():
            if text := show(printable(COLOUR.sub("", line).rstrip(), MAX_LINE)):
                self.last.append(text)
                log(f"[{self.name}] {text}")

    def ended(self) -> int | None:
        """The exit code; None while it runs."""
        code = self.process.poll()
        if code is not None:
            self.reader.join(1)
        return code


def without_chatter(line: str) -> str | None:
    """A line of Flower's log without what it says at every request."""
    return None if CHATTER.search(line) else line


def end(children: Sequence[Child]) -> None:
    """Ends children with all that they started; returns when nothing of it is left."""
    for child in children:
        child.process.terminate()
    for child in children:
        child.process.wait()
        child.ended()


@contextmanager
def stop_signals() -> Iterator[Event]:
    """An event that Ctrl-C, a termination and a closed terminal set; before and after, these do what they did."""
    stop = Event()
    before = {n: signal.signal(n, lambda *_: stop.set()) for n in STOPS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _locked_state(state: Path) -> AbstractContextManager[None]:
    """Keeps a second server or site out of the same folder."""
    return locked(state, f"another process uses {state}: choose another --state, or stop that one")


@contextmanager
def attended(state: Path) -> Iterator[tuple[list[Child], Event]]:
    """A list for the children of a server or site, which end with the block, and an event that tells it to stop.

    Nobody else uses the same folder meanwhile.
    """
    with _locked_state(state), stop_signals() as stop:
        children: list[Child] = []
        try:
            yield children, stop
        finally:
            end(children)


def environment(home: Path) -> dict[str, str]:
    """What Flower's processes see: its own folder in ours, nothing that calls home, this Python's programs first."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    direct = ",".join(filter(None, [os.environ.get("NO_PROXY"), LOOPBACK, "localhost"]))
    own = {"FLWR_HOME": str(home), "PATH": path, "NO_PROXY": direct, "no_proxy": direct}
    return {**os.environ, **QUIET, **own}


def program(name: str) -> str:
    """Where one of Flower's programs is."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        raise UserError(f"{name} is not installed, which a federation of real sites needs: {EXTRA}")
    return found


def flwr(arguments: Sequence[str], env: Mapping[str, str], timeout: float = 120) -> dict[str, object]:
    """What Flower's command line answers as JSON; it ends with 0 also where it failed."""
    command = [program("flwr"), *arguments, "--format", "json"]
    what = f"`flwr {' '.join(arguments[:2])}`"
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
        answer = json.loads(done.stdout[max(done.stdout.find("{"), 0) :])
    except subprocess.TimeoutExpired:
        raise RunError(f"{what} did not answer within {timeout:.0f} s: is the server up?") from None
    except json.JSONDecodeError:
        raise RunError(f"{what} failed: {(done.stderr or done.stdout).strip()[-400:]}") from None
    if not answer.get("success"):
        raise RunError(f"{what} failed: {_message(answer)}")
    return dict(answer)


def _message(answer: Mapping[str, object]) -> str:
    lines = str(answer.get("error-message")).strip().splitlines()
    return " ".join(line.strip() for line in lines if line.strip() and not line.startswith("Using SuperLink"))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach, or be reached at, that address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, or of [IPV6]:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise UserError(f"--server must be HOST:PORT, such as fl.example.org:8000, got {text!r:.80}")
    return host.strip("[]"), int(port)


def free_port() -> int:
    """A port of loopback that nobody uses at the moment."""
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Stops where nobody could listen at that address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot listen at {host} port {port} ({reason}): choose another --host or --port") from None


def wait_until_open(port: int, child: Child, stop: Event, host: str = LOOPBACK) -> bool:
    """Waits until a child listens; false if it was stopped first."""
    limit = time.monotonic() + STARTING
    while not stop.is_set():
        with suppress(OSError), socket.create_connection((host, port), timeout=1):
            return True
        if child.ended() is not None:
            raise RunError(f"{child.name} ended at its start: {' '.join(list(child.last)[-8:])[-600:]}")
        if time.monotonic() > limit:
            raise RunError(f"{child.name} does not listen at port {port} after {STARTING:.0f} s")
        stop.wait(0.2)
    return False
