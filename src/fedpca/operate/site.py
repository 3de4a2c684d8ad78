"""A site that takes part until it is told to stop: Flower's node, started again whenever it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import tomli_w

from fedpca.atomic import private_folder, write_whole
from fedpca.errors import RunError, UserError
from fedpca.operate import keys
from fedpca.operate.check_keys import require_keys
from fedpca.operate.processes import (
    INSECURE,
    STORE,
    Child,
    Log,
    Show,
    address,
    attended,
    end,
    environment,
    free_port,
    is_loopback,
    program,
    without_chatter,
)
from fedpca.sites.policy import policy_file, read_policy, told

REFUSAL = "[code: 2004]"  # Flower's: it does not know the key, or takes the site's last process for alive
LEASE = 120.0  # seconds after which Flower has surely noticed that a process is gone; it takes 60
JOINED = "joined"  # file in a site's state: which server it has been connected to
PAUSE = 5.0  # seconds before a site that was connected tries again


@dataclass(frozen=True)
class SiteOptions:
    """How a site takes part."""

    site: str
    data: Path
    server: str  # HOST:PORT
    keys: Path | None  # the site's folder of `fedpca deploy keys`; None without encryption
    state: Path
    changes: Mapping[str, object]  # settings of the site besides its name, data, store and policy
    policy: Path | None = None  # the site's own rules; None: those of site-policy.toml in its store, if it is there


def join(options: SiteOptions, insecure: bool, log: Log) -> int:
    """Takes part in the federation until it is told to stop; the exit code."""
    _check(options, insecure, log)
    with attended(options.state) as (children, stop):
        return _join(options, children, stop, log)


def _join(options: SiteOptions, children: list[Child], stop: Event, log: Log) -> int:
    command, env, connected = _supernode(options), environment(options.state.resolve() / "flower"), Event()
    limit = time.monotonic() + LEASE
    while not stop.is_set():
        port = ["--port", str(free_port())]  # for its own processes, on loopback
        child = Child(options.site, [*command, *port], env, log, _show(options, connected))
        children[:] = [child]
        while child.ended() is None and not stop.wait(0.2):
            pass
        if not stop.is_set():
            refused = REFUSAL in " ".join(child.last)
            limit = limit if refused else time.monotonic() + LEASE
            why = f"{options.server} takes this site's last process for alive" if refused else "the connection ended"
            if not refused or not _was_there(options) or time.monotonic() > limit:
                _refuse_hopeless(child, options.server, connected)
            end(children)
            log(f"[{options.site}] {why}; trying again in {PAUSE:.0f} s")
            stop.wait(PAUSE)
    log(f"[{options.site}] stopping")
    return 0


def _check(options: SiteOptions, insecure: bool, log: Log) -> None:
    keys.check_site(options.site)
    host, _ = address(options.server)
    if not options.data.exists():
        raise UserError(
            f"there is no {options.data}: --data must be the site's own file or folder of images and labels"
        )
    if path := policy_file(options.policy, options.state / STORE):
        log(f"[{options.site}] {told(read_policy(path), path)}")
    if options.keys is None and not insecure and not is_loopback(host):
        remedy = "ask its operator for your keys, or say --insecure"
        raise UserError(f"without --keys what is said to {options.server} {INSECURE}: {remedy}")
    if options.keys is not None:
        require_keys(options.keys, options.site)


def _supernode(options: SiteOptions) -> list[str]:
    command = [
        program("flower-supernode"),
        "--superlink",
        options.server,
        "--node-config",
        str(_node_settings(options)),
    ]
    if options.keys is None:
        return [*command, "--insecure"]
    command += ["--root-certificates", str(options.keys.resolve() / keys.CA_CERTIFICATE)]
    return [*command, "--auth-supernode-private-key", str(options.keys.resolve() / keys.SITE_KEY)]


def _node_settings(options: SiteOptions) -> Path:
    """What the app may ask this node for, in a file, where no quoting can go wrong."""
    path, store = (options.state.resolve() / name for name in ("node.toml", STORE))
    private_folder(store)
    own = {"site": options.site, "data": str(options.data.resolve()), "store": str(store)}
    if options.policy is not None:
        own["policy"] = str(options.policy.resolve())
    changes = dict(options.changes)
    if "corrected_labels" in changes:  # the node runs in a folder of Flower's
        changes["corrected_labels"] = str(Path(str(changes["corrected_labels"])).resolve())
    write_whole(path, tomli_w.dumps({**changes, **own}))
    return path


def _show(options: SiteOptions, connected: Event) -> Show:
    def show(line: str) -> str | None:
        if "SuperNode ID" in line:
            connected.set()
            write_whole(options.state / JOINED, options.server)
            return f"connected to {options.server}"
        return without_chatter(line)

    return show


def _was_there(options: SiteOptions) -> bool:
    """Whether this server has known the site's key before."""
    path = options.state / JOINED
    return path.is_file() and path.read_text() == options.server


def _refuse_hopeless(child: Child, server: str, connected: Event) -> None:
    """Stops where trying again would not help; a server that restarts ends connections too, and is waited for."""
    said = " ".join(child.last)
    if REFUSAL in said:
        raise RunError(
            f"{server} does not know the key of {child.name}: its operator must put your site.pub into the server's "
            f"keys as sites/{child.name}.pub"
        )
    if not connected.is_set():
        raise RunError(
            f"{child.name} could not join at {server}; `fedpca doctor` may tell why. Flower said: {said[-600:]}"
        )
