"""Some cases of `python -m studies.fuzz` and a kill of `python -m studies.kills`; in full they take many minutes."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import studies.fuzz.replies
from studies.fuzz.cases import FEW, MAX_GROWTH, Door, Tally, Target, play_cases
from studies.fuzz.data_files import DATA
from studies.fuzz.port import PORT
from studies.fuzz.replies import REPLIES
from studies.fuzz.settings_files import SETTINGS
from studies.kills import play, table

from fedpca.errors import SettingsError
from tests.unmeasured import unmeasured


@pytest.mark.parametrize(("target", "cases"), [(SETTINGS, 60), (DATA, 60), (REPLIES, 60), (PORT, 20)])
def test_nonsense_is_refused_in_plain_words_or_does_no_harm(
    target: Target, cases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(studies.fuzz.replies, "METHODS", ["fedavg", "fedcorr", "fedpca"])
    tally = play_cases(target, 1, range(cases), tmp_path)
    assert tally.findings == []
    assert tally.cases == cases == tally.refused + tally.accepted
    assert tally.refused
    assert tally.accepted


def trying(play, seconds: float = 5.0) -> Target:
    """A target that is this function."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Door]:
        yield Door(play)

    return Target("made up", 3, seconds, opened)


def test_what_must_not_be_is_found(tmp_path: Path):
    """An exception that is no refusal, a refusal that is no line, a warning, a hang: each with seed and case."""

    def kinds(rng: Random) -> bool:
        kind = next(turns)
        if kind == 0:
            raise KeyError("nobody expects this")
        if kind == 1:
            raise SettingsError("")
        if kind == 2:
            warnings.warn("quoted from a file", stacklevel=1)
        if kind == 3:
            time.sleep(20)
        return True

    turns = iter(range(5))
    tally = play_cases(trying(kinds, seconds=0.2), 7, range(5), tmp_path)
    words = ("nobody expects this", "a refusal without a word", "quoted from a file", "it took more than 0.2 s")
    assert len(tally.findings) == len(words)
    assert all(word in finding for word, finding in zip(words, tally.findings, strict=True))
    assert tally.findings[3].startswith("made up --seed 7 --case 3: ")
    assert (tally.cases, tally.accepted) == (5, 2)


def test_a_case_is_the_same_whoever_plays_it(tmp_path: Path):
    drawn: list[float] = []
    target = trying(lambda rng: bool(drawn.append(rng.random())))
    play_cases(target, 0, range(5), tmp_path)
    play_cases(target, 0, range(3, 4), tmp_path)
    assert drawn[3] == drawn[5]
    assert len({*drawn}) == 5


def test_memory_that_grows_is_found():
    steady, growing = (Tally("made up", FEW, memory=[100 + rise * step for step in range(100)]) for rise in (0, 1))
    assert (steady.growth, steady.grew) == (1, False)
    assert growing.growth is not None
    assert growing.growth > MAX_GROWTH
    assert growing.grew
    assert Tally("made up", 10, memory=[1, 2, 3, 4, 5, 6]).growth is None


KILLS = pytest.param(8, 60, marks=pytest.mark.skipif("FEDPCA_SLOW" not in os.environ, reason="takes minutes"))


@pytest.mark.parametrize(("kills", "rounds"), [(1, 10), KILLS])
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_killed_runs_end_with_the_same_bits(kills: int, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in os.environ.keys() - unmeasured().keys():
        monkeypatch.delenv(name)
    count = play(kills, rounds, 1, tmp_path)
    assert count.findings == []
    assert (count.kills, count.different) == (kills, 0)
    assert count.finished
    assert f"of {3 * count.finished} runs" in table(count)
