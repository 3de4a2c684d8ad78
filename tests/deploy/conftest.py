"""For tests with real processes: a network of nothing but loopback, an environment without coverage."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest


def unmeasured() -> dict[str, str]:
    """This environment, but what is started in it does not measure its coverage.

    When `sys.path` changes, as when Flower loads an app, coverage takes modules out of `sys.modules` that another
    thread is importing: a run then fails with a KeyError of the app's name.
    """
    return {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}


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
