"""A network of nothing but loopback, for tests with real processes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def prefix() -> Iterator[list[str]]:
    """What gives a command a network of nothing but loopback; nothing where the machine does not allow it."""
    command = "ip link set lo up && echo up && exec sleep 3600"
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        yield []
        return
    with subprocess.Popen(["unshare", "-rn", "sh", "-c", command], stdout=subprocess.PIPE, text=True) as holder:
        up = holder.stdout is not None and holder.stdout.readline() == "up\n"
        yield ["nsenter", "-t", str(holder.pid), "-U", "-n", "--preserve-credentials"] if up else []
        holder.kill()
