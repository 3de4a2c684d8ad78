"""A run of an app on the server of this machine, followed to its end."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import tomli_w

from fedpca.atomic import write_whole
from fedpca.errors import RunError
from fedpca.operate.processes import Child, Log, end, environment, flwr, program, stop_signals
from fedpca.operate.server import connection_file
from fedpca.settings.toml import flatten, nest

COMPLETED = "finished:completed"
APP, PACKED = "pyproject.toml", (".py", ".toml", ".md")  # what an app is made of


def submit_with(app: Path, added: Mapping[str, object], changes: Mapping[str, object], state: Path, log: Log) -> int:
    """The same as `submit` with settings that the app need not have: Flower changes only those that it has."""
    if not (app / APP).is_file():
        raise RunError(
            f"{app} describes no Flower app: it has no {APP}; name a folder such as examples/flower-hospitals"
        )
    with TemporaryDirectory(prefix="fedpca-") as folder:
        copy = Path(folder) / app.resolve().name
        shutil.copytree(app, copy, ignore=_not_packed)
        _add_settings(copy / APP, {**added, **changes})
        return submit(copy, {}, state, log)


def submit(app: Path, changes: Mapping[str, object], state: Path, log: Log) -> int:
    """Has the server of that folder run a Flower app, and shows its log to the end; the exit code."""
    if not connection_file(state).is_file():
        raise RunError(f"{state} belongs to no server: start one with `fedpca deploy server --state {state}`")
    env = environment(state.resolve() / "flower")
    with stop_signals() as stop:
        number = str(flwr(["run", str(app), *_config_options(changes, state)], env)["run-id"])
        log(f"run {number} started")
        ended = _follow(number, env, stop, log)
        if ended is None:
            flwr(["stop", number], env)
            log(f"run {number} stopped")
            return 130
    status, why = ended
    log(f"run {number} {status.removeprefix('finished:')}" + (f": {why}" if why else ""))
    return 0 if status == COMPLETED else 1


def _not_packed(folder: str, names: list[str]) -> list[str]:
    """What Flower would not pack into an app: runs and data may be large, and belong to nobody else."""
    hidden = [name for name in names if name.startswith(".") or name == "__pycache__"]
    return hidden + [name for name in names if Path(folder, name).is_file() and Path(name).suffix not in PACKED]


def _add_settings(path: Path, settings: Mapping[str, object]) -> None:
    """Writes settings into an app's own config."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        config = table["tool"]["flwr"]["app"].setdefault("config", {})
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise RunError(
            f"{path} describes no Flower app ({error}): name a folder such as examples/flower-hospitals"
        ) from None
    flat = flatten(config)
    table["tool"]["flwr"]["app"]["config"] = nest({**flat, **settings})
    write_whole(path, tomli_w.dumps(table))


def _config_options(changes: Mapping[str, object], state: Path) -> list[str]:
    """Settings in a file, where no quoting can go wrong."""
    if not changes:
        return []
    path = state.resolve() / "changes.toml"
    write_whole(path, tomli_w.dumps(changes))
    return ["--run-config", str(path)]


def _follow(number: str, env: Mapping[str, str], stop: Event, log: Log) -> tuple[str, str] | None:
    """Shows the log until the run has ended; how it ended, or None if we were told to stop first."""
    child = Child("run", [program("flwr"), "log", number, "--stream"], env, log)
    try:
        while child.ended() is None and not stop.wait(0.2):
            pass
    finally:
        end([child])
    while not stop.is_set():
        try:
            status, why = run_status(number, env)
        except RunError:
            remedy = "start it and then this run again, which goes on from its last checkpoint"
            raise RunError(f"the server went away before run {number} had ended: {remedy}") from None
        if status.startswith("finished"):
            return status, why
        stop.wait(3)  # the stream broke off before the run did
    return None


def run_status(number: str, env: Mapping[str, str]) -> tuple[str, str]:
    """What Flower says of a run, and why where it says so."""
    runs = flwr(["list", "--run-id", number], env)["runs"]
    run = runs[0] if isinstance(runs, list) and runs else {}
    details = str(run.get("status-details", ""))
    return str(run.get("status")), "" if details == "N/A" else details
