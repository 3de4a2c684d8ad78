"""What can be checked before a site joins: programs, keys, the way to the server, data, disk and clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedpca.errors import UserError
from fedpca.operate.check_machine import check_data, check_disk, check_model, check_versions, read_expected
from fedpca.operate.check_server import check_server
from fedpca.operate.findings import Finding


@dataclass(frozen=True)
class Machine:
    """What is known of a machine; what is None is not checked."""

    site: str | None = None
    data: Path | None = None
    server: str | None = None
    keys: Path | None = None
    federation: Path | None = None
    state: Path = Path()


def examine(machine: Machine) -> Iterator[Finding]:
    """Everything that can be checked with what is given, from the simple to the far."""
    expected = None
    if machine.federation is not None:
        try:
            expected = read_expected(machine.federation)
            yield Finding("ok", f"{machine.federation}: {len(expected.classes)} classes, model {expected.model}")
        except UserError as error:
            yield Finding("error", str(error), "ask the server's operator for the file again")
    yield from check_versions(expected)
    if machine.keys is not None:
        from fedpca.operate.check_keys import check_keys  # here: only keys need `cryptography`

        yield from _guarded(check_keys(machine.keys, machine.site))
    if machine.server is not None:
        yield from _guarded(check_server(machine.server, machine.keys))
    yield check_disk(machine.state)
    if expected is not None:
        yield from _guarded(check_model(expected))
    if machine.data is not None:
        yield from _guarded(check_data(machine.data, expected))


def _guarded(check: Iterator[Finding]) -> Iterator[Finding]:
    """A check that cannot go on is an error of its own."""
    try:
        yield from check
    except UserError as error:
        yield Finding("error", str(error))
