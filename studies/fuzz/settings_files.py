"""Settings files and changes of the command line: shipped experiments with something wrong in them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import tomli_w

from fedpca.cli.main import main
from fedpca.errors import UserError
from fedpca.methods.registry import method_names
from fedpca.runs.check import method_of, one_run, read_settings, read_stored
from fedpca.settings.experiment import Experiment
from fedpca.settings.shipped import shipped_experiments
from fedpca.settings.toml import write_table
from studies.fuzz.cases import Door, Target
from studies.fuzz.nonsense import damaged, deep, text, value

THROUGH_CLI = 0.01  # of the files that name embedded data and small federations; a dry run trains for a moment
SMALL = 200  # clients and rounds of those
Place = tuple[dict[str, Any], str]


def odd_table(rng: Random, table: dict[str, Any]) -> dict[str, Any]:
    """A table with values of other files and methods of other names in it, which may well be right."""
    for _ in range(rng.choice((1, 2, 4))):
        inner, key = rng.choice([*places(table)])
        if not isinstance(inner[key], dict):
            inner[key] = rng.choice(VALUES.get(key, [0]))
    if rng.random() < 0.5:
        table["methods"] = ["+".join(rng.sample(NAMES, rng.choice((1, 1, 2)))) for _ in range(rng.choice((1, 2)))]
    return table


def wrong_table(rng: Random, table: dict[str, Any]) -> dict[str, Any]:
    """A table with one to five things wrong in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        inner, key = rng.choice([*places(table)])
        match rng.randrange(8):
            case 0 | 1 | 2:
                inner[key] = value(rng)
            case 3:
                inner[text(rng)] = inner.pop(key)
            case 4:
                inner[rng.choice(WORDS)] = value(rng)
            case 5:
                inner[key] = deep(rng, rng.random() < 0.5)
            case 6:
                table["methods"] = [method_name(rng) for _ in range(rng.choice((1, 1, 2, 4)))]
            case _:
                table["method"] = {method_name(rng): {rng.choice(WORDS): value(rng)}}
        if not table:
            break
    return table


def places(table: dict[str, Any]) -> Iterator[Place]:
    """Every key of a table and of those within it."""
    for key, inner in table.items():
        yield table, key
        if isinstance(inner, dict):
            yield from places(inner)


def method_name(rng: Random) -> str:
    """A name of a method, or of what looks like one."""
    names = [rng.choice(NAMES) if rng.random() < 0.8 else text(rng)[:2000] for _ in range(rng.choice((1, 1, 2, 3, 40)))]
    return rng.choice(("+", "+", "+", "++", " + ", "")).join(names) + rng.choice(("", "", "+d", "+d+d", ":", "+"))


def changes(rng: Random) -> list[str]:
    """Some `--set`, right or wrong."""
    made = []
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2, 4))):
        key = ".".join(
            rng.choice(WORDS) if rng.random() < 0.9 else text(rng) for _ in range(rng.choice((1, 2, 2, 3, 30)))
        )
        made.append(f"{key}{rng.choice(('=', '=', '=', '', '==', ' = '))}{rng.choice((value(rng), text(rng)))}")
    return made


def file_content(rng: Random) -> bytes:
    """A shipped experiment as a file, with something wrong in its values or in its letters."""
    whole = rng.choice(FILES)
    if rng.random() < 0.4:
        return tomli_w.dumps(odd_table(rng, tomllib.loads(whole.decode()))).encode()
    if rng.random() < 0.3:
        return damaged(rng, whole)
    if rng.random() < 0.2:
        lines = whole.decode().splitlines()
        lines.insert(
            rng.randrange(len(lines) + 1), rng.choice((text(rng), "[" * 2000, "a = " + "[" * 2000, "x=1\nx=2"))
        )
        return "\n".join(lines).encode(errors="surrogatepass")
    table = wrong_table(rng, tomllib.loads(whole.decode()))
    try:
        return tomli_w.dumps(table).encode(errors="surrogatepass")
    except (TypeError, ValueError, RecursionError):  # what TOML cannot say
        return damaged(rng, whole)


def play(rng: Random, folder: Path) -> bool:
    """Reads and checks a file with changes; what is accepted must make methods, and be the same when stored."""
    path, changed = folder / "own.toml", changes(rng)
    path.write_bytes(file_content(rng))
    settings = read_settings(path, changed)
    for experiment in settings.values():
        for name in experiment.methods:
            method_of(experiment, name)
            require_stored(one_run(experiment, name, experiment.seeds[0]), folder / "settings.toml")
    if rng.random() < THROUGH_CLI and all(map(is_small, settings.values())):
        dry_run([str(path), *(word for change in changed for word in ("--set", change))], folder)
    return True


def require_stored(run: Experiment, path: Path) -> None:
    """A run folder that is written can be read, and holds the same."""
    path.write_text(write_table(run), encoding="utf-8")
    try:
        stored = read_stored(path)
    except UserError as error:
        raise AssertionError(f"what was accepted cannot be read again: {error}") from None
    assert stored == run, f"{stored} is not {run}"


def is_small(experiment: Experiment) -> bool:
    """Whether a dry run of it takes a moment."""
    own = experiment.data
    return own.dataset == "digits" and (own.clients or 0) <= SMALL and experiment.model.weights is None


def dry_run(words: list[str], folder: Path) -> None:
    """`fedpca run` in this process; it ends well, or in one message."""
    said = StringIO()
    command = ["fedpca", "run", *words, "--dry-run", "--out", str(folder / "runs"), "--workers", "1"]
    code: object = 0
    with patch.object(sys, "argv", command), patch.object(sys, "path", [*sys.path]):
        try:
            with redirect_stdout(said), redirect_stderr(said):
                main()
        except SystemExit as end:
            code = end.code
    assert code in (None, 0, 1, 2), f"it ended with {code}: {said.getvalue()}"
    assert "Traceback" not in said.getvalue(), said.getvalue()


@contextmanager
def opened(folder: Path) -> Iterator[Door]:
    """Files in this folder."""
    yield Door(lambda rng: play(rng, folder))


FILES = [path.read_bytes() for path in shipped_experiments().values()]
NAMES = [
    *method_names(),
    "nobody",
    "json:loads",
    "os:path",
    "nowhere:x",
    ":",
    ".:.",
    "os.:x",
    "studies.golden:main",
    "d",
]
TABLES = [tomllib.loads(file.decode()) for file in FILES]
VALUES: dict[str, list[Any]] = {}  # of each key, wherever it stands
for _inner, _key in (place for own in TABLES for place in places(own)):
    VALUES.setdefault(_key, []).append(_inner[_key])
WORDS = sorted({*VALUES, "a", "method", "data"})
SETTINGS = Target("settings", 10_000, 60.0, opened)
