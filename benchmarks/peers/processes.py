"""Several processes of one peer that find each other over the loopback interface."""

import os
import socket
import subprocess
import sys


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def start_again(**environment: str) -> None:
    """Starts this very program once more, beside this process, with something more in its environment."""
    spec = sys.modules["__main__"].__spec__
    assert spec is not None, "peers are started with -m"
    subprocess.Popen(
        [sys.executable, "-m", spec.name, *sys.argv[1:]],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
