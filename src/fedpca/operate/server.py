"""What an operator starts: the server, a site, a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import tomli_w

from fedpca.atomic import locked, write_whole
from fedpca.errors import RunError, UserError
from fedpca.operate import keys
from fedpca.operate.processes import (
    LOOPBACK,
    OURS,
    Child,
    Show,
    Tell,
    address,
    check_port,
    end,
    environment,
    flwr,
    free_port,
    is_loopback,
    plain,
    program,
    stopping,
    wait_until_open,
)

INSECURE = "would be readable and open to anyone on the network"
NEW_SITES = 5.0  # seconds between looks at who may join
REFUSED = "[code: 2004]"  # Flower's: it does not know the key, or takes the site's last process for alive
LEASE = 120.0  # seconds after which Flower has surely noticed that a process is gone; it takes 60
COMPLETED = "finished:completed"
JOINED = "joined"  # file in a site's state: which server it has been connected to
PAUSE = 5.0  # seconds before a site that was connected tries again


@dataclass(frozen=True)
class Serving:
    """How a server is reached and where it keeps things."""

    state: Path
    host: str
    port: int
    keys: Path | None  # the folder server/ of `fedpca deploy keys`; None without encryption


# The server


def serve(serving: Serving, insecure: bool, tell: Tell) -> int:
    """Runs Flower behind its gate until it is told to stop; the exit code."""
    _check_server(serving, insecure)
    with ExitStack() as stack:
        stack.enter_context(_alone(serving.state))
        stop = stack.enter_context(stopping())
        children: list[Child] = []
        stack.callback(lambda: end(children))
        return _serve(serving, children, stop, tell)


def _serve(serving: Serving, children: list[Child], stop: Event, tell: Tell) -> int:
    inner, env = free_port(), environment(serving.state.resolve() / "flower")
    names: dict[str, str] = {}  # of sites, by what Flower numbers them

    def show(line: str) -> str | None:
        for number, name in names.items():
            line = line.replace(number, name)
        return plain(line)

    children.append(Child("server", _superlink(serving.keys, inner), env, tell, show))
    if not wait_until_open(inner, children[0], stop):
        return 0
    _write_connection(serving, inner)
    joined = _admit({}, serving.keys, env, tell)
    names.update(_numbered(joined))
    children.append(Child("gate", _gate(serving, inner), env, tell, lambda line: line))
    if wait_until_open(serving.port, children[1], stop, _own(serving.host)):
        how = f"{len(names)} sites may join" if serving.keys else "without encryption, anyone may join"
        tell(f"ready at {serving.host}:{serving.port}; {how}")
    said = ""
    while not stop.wait(NEW_SITES):
        if gone := next((child for child in children if child.ended() is not None), None):
            tell(f"{gone.name} ended by itself: the server stops")
            return 1
        try:
            joined = _admit(joined, serving.keys, env, tell)
            names.update(_numbered(joined))
        except UserError as error:  # a wrong file among the keys must not end a run
            if str(error) != said:
                tell(said := str(error))
    tell("stopping")
    return 0


def _numbered(joined: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    return {number: site for site, (_, number) in joined.items() if number}


def _check_server(serving: Serving, insecure: bool) -> None:
    if serving.keys is None and not insecure and not is_loopback(serving.host):
        raise UserError(
            f"without --keys what is said at {serving.host} {INSECURE}: make keys with `fedpca deploy keys`, "
            "or stay on --host 127.0.0.1, or say --insecure"
        )
    if serving.keys is not None:
        for name in (keys.CA_CERTIFICATE, keys.SERVER_CERTIFICATE, keys.SERVER_KEY):
            if not (serving.keys / name).is_file():
                raise UserError(
                    f"{serving.keys} has no {name}: --keys must be the folder server/ of `fedpca deploy keys`"
                )
        if not keys.registered(serving.keys):
            raise UserError(
                f"{serving.keys / keys.SITES} has no NAME.pub, so nobody may join: run `fedpca deploy keys NAME`"
            )
    check_port(serving.host, serving.port)


def _alone(state: Path) -> AbstractContextManager[None]:
    """Keeps a second process out of the same folder."""
    return locked(state, f"another process uses {state}: choose another --state, or stop that one")


def _superlink(server_keys: Path | None, port: int) -> list[str]:
    command = [program("flower-superlink"), "--host", LOOPBACK, "--port", str(port)]
    command += ["--disable-runtime-dependency-installation"]
    if server_keys is None:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": keys.CA_CERTIFICATE, "--ssl-certfile": keys.SERVER_CERTIFICATE}
    for option, name in {**files, "--ssl-keyfile": keys.SERVER_KEY}.items():
        command += [option, str(server_keys.resolve() / name)]
    return [*command, "--enable-supernode-auth"]


def _gate(serving: Serving, inner: int) -> list[str]:
    command = [*OURS, "fedpca.operate.proxy", "--host", serving.host, "--port", str(serving.port)]
    if serving.keys is None:
        return [*command, "--flower", f"http://{LOOPBACK}:{inner}"]
    files = {"--ca": keys.CA_CERTIFICATE, "--certificate": keys.SERVER_CERTIFICATE, "--key": keys.SERVER_KEY}
    for option, name in files.items():
        command += [option, str(serving.keys / name)]
    return [*command, "--flower", f"https://{LOOPBACK}:{inner}"]


def _own(host: str) -> str:
    """Where this machine reaches what listens at that address."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)


def _write_connection(serving: Serving, port: int) -> None:
    """Tells Flower's command line where the server is."""
    trust: dict[str, object] = {"insecure": True}
    if serving.keys is not None:
        trust = {"root-certificates": str(serving.keys.resolve() / keys.CA_CERTIFICATE)}
    connection = {"address": f"{LOOPBACK}:{port}", **trust}
    write_whole(_connection(serving.state), tomli_w.dumps({"superlink": {"default": "here", "here": connection}}))


def _connection(state: Path) -> Path:
    return state / "flower" / "config.toml"


def _admit(
    joined: Mapping[str, tuple[str, str]], server_keys: Path | None, env: Mapping[str, str], tell: Tell
) -> dict[str, tuple[str, str]]:
    """Makes Flower know the keys in the folder and no others; each site's key and number, none if it was refused."""
    if server_keys is None:
        return {}
    paths = keys.registered(server_keys)
    found = {site: path.read_text(errors="replace").strip() for site, path in paths.items()}
    for site, (key, number) in joined.items():
        if found.get(site) != key and number:
            flwr(["supernode", "unregister", number], env)
            tell(f"{site} may no longer join")
    kept = {site: known for site, known in joined.items() if found.get(site) == known[0]}
    new = [site for site in found if site not in kept]
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda site: _register(site, paths[site], env, tell), new))
    return {**kept, **{site: (found[site], number) for site, number in zip(new, numbers, strict=True)}}


def _register(site: str, path: Path, env: Mapping[str, str], tell: Tell) -> str:
    try:
        number = str(flwr(["supernode", "register", str(path), "--name", site], env)["node-id"])
    except RunError as error:
        tell(f"{site} may not join, {path} is refused: {error}")
        return ""
    tell(f"{site} may join")
    return number


# A site


@dataclass(frozen=True)
class Joining:
    """How a site takes part."""

    site: str
    data: Path
    server: str  # HOST:PORT
    keys: Path | None  # the site's folder of `fedpca deploy keys`; None without encryption
    state: Path
    changes: Mapping[str, object]  # settings of the site besides its name, data and store


def join(joining: Joining, insecure: bool, tell: Tell) -> int:
    """Takes part in the federation until it is told to stop; the exit code."""
    _check_site(joining, insecure)
    with ExitStack() as stack:
        stack.enter_context(_alone(joining.state))
        stop = stack.enter_context(stopping())
        children: list[Child] = []
        stack.callback(lambda: end(children))
        return _join(joining, children, stop, tell)


def _join(joining: Joining, children: list[Child], stop: Event, tell: Tell) -> int:
    command, env, connected = _supernode(joining), environment(joining.state.resolve() / "flower"), Event()
    limit = time.monotonic() + LEASE
    while not stop.is_set():
        port = ["--port", str(free_port())]  # for its own processes, on loopback
        child = Child(joining.site, [*command, *port], env, tell, _at_a_site(joining, connected))
        children[:] = [child]
        while child.ended() is None and not stop.wait(0.2):
            pass
        if not stop.is_set():
            refused = REFUSED in " ".join(child.last)
            limit = limit if refused else time.monotonic() + LEASE
            why = f"{joining.server} takes this site's last process for alive" if refused else "the connection ended"
            if not refused or not _was_there(joining) or time.monotonic() > limit:
                _refuse_hopeless(child, joining.server, connected)
            end(children)
            tell(f"[{joining.site}] {why}; trying again in {PAUSE:.0f} s")
            stop.wait(PAUSE)
    tell(f"[{joining.site}] stopping")
    return 0


def _check_site(joining: Joining, insecure: bool) -> None:
    keys.check_site(joining.site)
    host, _ = address(joining.server)
    if not joining.data.exists():
        raise UserError(
            f"there is no {joining.data}: --data must be the site's own file or folder of images and labels"
        )
    if joining.keys is None and not insecure and not is_loopback(host):
        remedy = "ask its operator for your keys, or say --insecure"
        raise UserError(f"without --keys what is said to {joining.server} {INSECURE}: {remedy}")
    if joining.keys is not None:
        keys.read_certificate(joining.keys / keys.CA_CERTIFICATE)
        keys.read_site_key(joining.keys / keys.SITE_KEY)


def _supernode(joining: Joining) -> list[str]:
    command = [
        program("flower-supernode"),
        "--superlink",
        joining.server,
        "--node-config",
        str(_node_settings(joining)),
    ]
    if joining.keys is None:
        return [*command, "--insecure"]
    command += ["--root-certificates", str(joining.keys.resolve() / keys.CA_CERTIFICATE)]
    return [*command, "--auth-supernode-private-key", str(joining.keys.resolve() / keys.SITE_KEY)]


def _node_settings(joining: Joining) -> Path:
    """What the app may ask this node for, in a file, where no quoting can go wrong."""
    path, store = (joining.state.resolve() / name for name in ("node.toml", "store"))
    store.mkdir(exist_ok=True)
    own = {"site": joining.site, "data": str(joining.data.resolve()), "store": str(store)}
    write_whole(path, tomli_w.dumps({**joining.changes, **own}))
    return path


def _at_a_site(joining: Joining, connected: Event) -> Show:
    def show(line: str) -> str | None:
        if "SuperNode ID" in line:
            connected.set()
            write_whole(joining.state / JOINED, joining.server)
            return f"connected to {joining.server}"
        return plain(line)

    return show


def _was_there(joining: Joining) -> bool:
    """Whether this server has known the site's key before."""
    path = joining.state / JOINED
    return path.is_file() and path.read_text() == joining.server


def _refuse_hopeless(child: Child, server: str, connected: Event) -> None:
    """Stops where trying again would not help; a server that restarts ends connections too, and is waited for."""
    said = " ".join(child.last)
    if REFUSED in said:
        raise RunError(
            f"{server} does not know the key of {child.name}: its operator must put your site.pub into the server's "
            f"keys as sites/{child.name}.pub"
        )
    if not connected.is_set():
        raise RunError(
            f"{child.name} could not join at {server}; `fedpca doctor` may tell why. Flower said: {said[-600:]}"
        )


# A run


def submit(app: Path, changes: Mapping[str, object], state: Path, tell: Tell) -> int:
    """Has the server of that folder run a Flower app, and shows its log to the end; the exit code."""
    if not _connection(state).is_file():
        raise RunError(f"{state} belongs to no server: start one with `fedpca deploy server --state {state}`")
    env = environment(state.resolve() / "flower")
    with stopping() as stop:
        number = str(flwr(["run", str(app), *_changed(changes, state)], env)["run-id"])
        tell(f"run {number} started")
        ended = _follow(number, env, stop, tell)
        if ended is None:
            flwr(["stop", number], env)
            tell(f"run {number} stopped")
            return 130
    status, why = ended
    tell(f"run {number} {status.removeprefix('finished:')}" + (f": {why}" if why else ""))
    return 0 if status == COMPLETED else 1


def _changed(changes: Mapping[str, object], state: Path) -> list[str]:
    """Settings in a file, where no quoting can go wrong."""
    if not changes:
        return []
    path = state.resolve() / "changes.toml"
    write_whole(path, tomli_w.dumps(changes))
    return ["--run-config", str(path)]


def _follow(number: str, env: Mapping[str, str], stop: Event, tell: Tell) -> tuple[str, str] | None:
    """Shows the log until the run has ended; how it ended, or None if we were told to stop first."""
    child = Child("run", [program("flwr"), "log", number, "--stream"], env, tell)
    try:
        while child.ended() is None and not stop.wait(0.2):
            pass
    finally:
        end([child])
    while not stop.is_set():
        try:
            status, why = _status(number, env)
        except RunError:
            remedy = "start it and then this run again, which goes on from its last checkpoint"
            raise RunError(f"the server went away before run {number} had ended: {remedy}") from None
        if status.startswith("finished"):
            return status, why
        stop.wait(3)  # the stream broke off before the run did
    return None


def _status(number: str, env: Mapping[str, str]) -> tuple[str, str]:
    runs = flwr(["list", "--run-id", number], env)["runs"]
    run = runs[0] if isinstance(runs, list) and runs else {}
    details = str(run.get("status-details", ""))
    return str(run.get("status")), "" if details == "N/A" else details
