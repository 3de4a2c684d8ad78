"""Run folders that cannot be read are named in one line each, and keep nobody from reading the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedpca.results.page.feed import RunFeed
from fedpca.results.read.runs import find_runs
from tests.results.made import a_line, append, write_run

BREAK = {
    "null line": ("rounds.jsonl", "null\n"),
    "list": ("rounds.jsonl", "[1, 2]\n"),
    "no object": ("rounds.jsonl", "{\n"),
    "deep line": ("rounds.jsonl", "[" * 100_000 + "\n"),
    "clients null": ("rounds.jsonl", '{"round": 1, "groups": null, "clients": null}\n'),
    "digits in a line": ("rounds.jsonl", '{"round": ' + "9" * 5000 + "}\n"),
    "about null": ("about.json", "null"),
    "about deep": ("about.json", "[" * 100_000),
    "about without clients": ("about.json", '{"dataset": "x", "clients": 3}'),
    "settings deep": ("settings.toml", "a = " + "[" * 5000),
    "settings digits": ("settings.toml", "rounds = " + "9" * 4400),
    "settings bytes": ("settings.toml", "\0\1"),
    "settings types": ("settings.toml", 'rounds = "many"'),
}


@pytest.mark.parametrize("case", BREAK)
def test_one_broken_folder_is_passed_over_by_name(tmp_path: Path, case: str):
    good = write_run(tmp_path / "good", [a_line(1)])
    bad = write_run(tmp_path / "bad", [a_line(1)], seed=1)
    name, content = BREAK[case]
    (bad / name).write_text(content)
    said: list[str] = []
    assert [run.folder for run in find_runs([tmp_path], said.append)] == [good]
    assert len(said) == 1
    assert str(bad) in said[0]
    assert len(said[0].splitlines()) == 1
    assert len(said[0]) < 1000


def test_watch_goes_on_after_a_bad_line(tmp_path: Path):
    good = write_run(tmp_path / "good", [a_line(1)])
    bad = write_run(tmp_path / "bad", [a_line(1)], seed=1)
    feed = RunFeed(tmp_path, 60)
    assert len(feed.state().runs) == 2
    with (bad / "rounds.jsonl").open("a") as file:
        file.write('null\n{"round": 3, "groups": null, "clients": null}\n')
    append(good, a_line(2))
    state = feed.state()
    assert [len(run.rounds) for run in state.runs] == [2]
    assert str(bad) in state.words


@pytest.mark.parametrize("words", [("--csv", "/proc/none/t.csv"), ("--html", "/proc/page.html")])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, words: tuple[str, str]):
    write_run(tmp_path / "good", [a_line(1)])
    command = [sys.executable, "-m", "fedpca", "results", str(tmp_path), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
