"""The server that an operator starts: Flower behind the reverse proxy, for the sites whose keys it has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event

import tomli_w

from fedpca.atomic import write_whole
from fedpca.errors import UserError
from fedpca.operate import keys
from fedpca.operate.admission import Admission
from fedpca.operate.check_keys import require_keys
from fedpca.operate.processes import (
    INSECURE,
    LOOPBACK,
    PYTHON,
    Child,
    Log,
    attended,
    check_port,
    environment,
    free_port,
    is_loopback,
    program,
    wait_until_open,
    without_chatter,
)

NEW_SITES = 5.0  # seconds between looks at who may join


@dataclass(frozen=True)
class ServerOptions:
    """How a server is reached and where it keeps things."""

    state: Path
    host: str
    port: int
    keys: Path | None  # the folder server/ of `fedpca deploy keys`; None without encryption


def serve(options: ServerOptions, insecure: bool, log: Log) -> int:
    """Runs Flower behind the reverse proxy until it is told to stop; the exit code."""
    _check(options, insecure)
    with attended(options.state) as (children, stop):
        return _serve(options, children, stop, log)


def _serve(options: ServerOptions, children: list[Child], stop: Event, log: Log) -> int:
    inner, env = free_port(), environment(options.state.resolve() / "flower")
    admission = Admission(options.keys, env, log)
    children.append(
        Child("server", _superlink(options.keys, inner), env, log, lambda line: without_chatter(admission.named(line)))
    )
    if not wait_until_open(inner, children[0], stop):
        return 0
    _write_connection(options, inner)
    admission.refresh()
    children.append(Child("proxy", _proxy(options, inner), env, log, lambda line: line))
    if wait_until_open(options.port, children[1], stop, _reachable(options.host)):
        how = f"{admission.count} sites may join" if options.keys else "without encryption, anyone may join"
        log(f"ready at {options.host}:{options.port}; {how}")
    return _watch(children, admission, stop, log)


def _watch(children: list[Child], admission: Admission, stop: Event, log: Log) -> int:
    """Admits new sites until the server is told to stop, or a child of it has ended."""
    last = ""
    while not stop.wait(NEW_SITES):
        if gone := next((child for child in children if child.ended() is not None), None):
            log(f"{gone.name} ended by itself: the server stops")
            return 1
        try:
            admission.refresh()
        except UserError as error:  # a wrong file among the keys must not end a run
            if str(error) != last:
                log(last := str(error))
    log("stopping")
    return 0


def _check(options: ServerOptions, insecure: bool) -> None:
    if options.keys is None and not insecure and not is_loopback(options.host):
        raise UserError(
            f"without --keys what is said at {options.host} {INSECURE}: make keys with `fedpca deploy keys`, "
            "or stay on --host 127.0.0.1, or say --insecure"
        )
    if options.keys is not None:
        for name in (keys.CA_CERTIFICATE, keys.SERVER_CERTIFICATE, keys.SERVER_KEY):
            if not (options.keys / name).is_file():
                raise UserError(
                    f"{options.keys} has no {name}: --keys must be the folder server/ of `fedpca deploy keys`"
                )
        if not keys.registered_sites(options.keys):
            raise UserError(
                f"{options.keys / keys.SITES} has no NAME.pub, so nobody may join: run `fedpca deploy keys NAME`"
            )
        require_keys(options.keys, None)
    check_port(options.host, options.port)


def _superlink(server_keys: Path | None, port: int) -> list[str]:
    command = [program("flower-superlink"), "--host", LOOPBACK, "--port", str(port)]
    command += ["--disable-runtime-dependency-installation"]
    if server_keys is None:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": keys.CA_CERTIFICATE, "--ssl-certfile": keys.SERVER_CERTIFICATE}
    for option, name in {**files, "--ssl-keyfile": keys.SERVER_KEY}.items():
        command += [option, str(server_keys.resolve() / name)]
    return [*command, "--enable-supernode-auth"]


def _proxy(options: ServerOptions, inner: int) -> list[str]:
    command = [*PYTHON, "fedpca.operate.proxy", "--host", options.host, "--port", str(options.port)]
    if options.keys is None:
        return [*command, "--flower", f"http://{LOOPBACK}:{inner}"]
    files = {"--ca": keys.CA_CERTIFICATE, "--certificate": keys.SERVER_CERTIFICATE, "--key": keys.SERVER_KEY}
    for option, name in files.items():
        command += [option, str(options.keys / name)]
    return [*command, "--flower", f"https://{LOOPBACK}:{inner}"]


def _reachable(host: str) -> str:
    """Where this machine reaches what listens at that address."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)


def _write_connection(options: ServerOptions, port: int) -> None:
    """Writes where Flower's command line finds the server."""
    trust: dict[str, object] = {"insecure": True}
    if options.keys is not None:
        trust = {"root-certificates": str(options.keys.resolve() / keys.CA_CERTIFICATE)}
    connection = {"address": f"{LOOPBACK}:{port}", **trust}
    write_whole(connection_file(options.state), tomli_w.dumps({"superlink": {"default": "here", "here": connection}}))


def connection_file(state: Path) -> Path:
    """Where Flower's command line reads which server belongs to a folder."""
    return state / "flower" / "config.toml"
