"""kill -9 at random moments: `python -m studies.kills [--kills 100] [--rounds 100] [--seed 0]`.

`fedpca run digits --jobs 2 --resume` plays fedavg, fedcorr (whose clients remember) and fedpca. It is killed at a
random moment and started again until it is finished, then all begins afresh, until there were so many kills. Either
all of its processes are killed, or one of them, as when memory runs out: the others then end by themselves. Each
finished folder is compared with that of a run that nobody killed: every round's line and every tensor of the final
weights. Exit code 1 if one differs, or if a process that was not killed ends without a message of its own.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fedpca.runs.folder import FINAL
from studies.golden import digests

METHODS = ("fedavg", "fedcorr", "fedpca")
CHANGES = (
    "data.clients=10",
    "data.train_images=400",
    "data.test_images=150",
    "rare.share=0.2",
    "noise.clients=0.2",
    "noise.labels=0.8",
    "training.batch=16",
    "model.name=mlp",
    "method.fedcorr.stages=[3, 4]",
    "method.fedpca.warmup=4",
)
WHOLE = 0.5  # share of the kills that hit all processes at once
PATIENCE = 900.0  # seconds that a run may take
DIED = "a worker process died by signal 9"  # what the command says where one of its processes was killed


@dataclass
class Count:
    """What the kills did."""

    kills: int = 0  # of something that ran
    whole: int = 0  # of these, how many hit all processes
    playing: int = 0  # before how many rounds were played since the last start
    finished: int = 0  # experiments
    different: int = 0  # run folders
    findings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """One experiment that is killed and goes on, in a folder."""

    out: Path
    rounds: int

    @property
    def folders(self) -> list[Path]:
        """Of its runs."""
        return [self.out / method / "seed-0" for method in METHODS]

    @property
    def log(self) -> Path:
        """What the last start said."""
        return self.out.with_suffix(".log")

    def command(self) -> list[str]:
        """As a user types it."""
        words = [sys.executable, "-m", "fedpca", "run", "digits", "--seed", "0", "--jobs", "2", "--resume"]
        words += ["--out", str(self.out), "--workers", "1", "--set", f"rounds={self.rounds}"]
        words += [word for method in METHODS for word in ("--method", method)]
        return words + [word for change in CHANGES for word in ("--set", change)]

    def start(self) -> subprocess.Popen[bytes]:
        """As a group of processes."""
        self.out.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as file:
            return subprocess.Popen(self.command(), stdout=file, stderr=file, start_new_session=True)

    def said(self) -> str:
        """By the last start."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_finished(self) -> bool:
        """Whether every run has its final weights."""
        return all((folder / FINAL).exists() for folder in self.folders)

    def written(self) -> int:
        """Bytes of all rounds' lines."""
        paths = (folder / "rounds.jsonl" for folder in self.folders)
        return sum(path.stat().st_size for path in paths if path.exists())

    def content(self) -> dict[str, dict[str, str]]:
        """What each run folder holds, digested."""
        return {folder.parent.name: dict(digests(folder)) for folder in self.folders}


def play_whole(own: Experiment) -> float:
    """Plays without a kill; the seconds that it took."""
    began, process = time.monotonic(), own.start()
    if process.wait(PATIENCE):
        raise SystemExit(f"without a kill it ends with code {process.returncode}: {own.said()[-2000:]}")
    return time.monotonic() - began


def play_killed(own: Experiment, seconds: float, most: int, count: Count, rng: Random) -> None:
    """Plays to the end through kills, as long as there are fewer than `most` in all."""
    while not own.is_finished() and not count.findings:
        before, process = own.written(), own.start()
        killed = ""
        if count.kills < most:
            killed = kill_at(process, rng.uniform(0, seconds), rng)
            count.kills += bool(killed)
            count.whole += killed == "all"
            count.playing += bool(killed) and own.written() > before
        end_of(process, own, killed, count)


def kill_at(process: subprocess.Popen[bytes], moment: float, rng: Random) -> str:
    """Waits, then kills all processes, the first one, or one that this one started; "" where none ran any more."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment)
        return ""
    if rng.random() < WHOLE:
        os.killpg(process.pid, signal.SIGKILL)
        return "all"
    victim = rng.choice([*members(process.pid)] or [process.pid])
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return "first" if victim == process.pid else "another"


def end_of(process: subprocess.Popen[bytes], own: Experiment, killed: str, count: Count) -> None:
    """Waits until nobody of the group is left; the process that was started ends well, or says why not."""
    end = time.monotonic() + PATIENCE
    while (process.poll() is None or [*members(process.pid)]) and time.monotonic() < end:
        time.sleep(0.05)
    if time.monotonic() >= end:
        os.killpg(process.pid, signal.SIGKILL)
        count.findings.append(f"its processes go on for {PATIENCE:g} s after a kill of {killed or 'none'}")
    expected = process.returncode == 0 or (killed == "another" and DIED in own.said())
    if killed not in ("all", "first") and (not expected or "Traceback (most" in own.said()):
        count.findings.append(f"killed: {killed or 'none'}, code {process.returncode}: {own.said()[-1500:]}")


def members(group: int) -> Iterator[int]:
    """The processes of a group that are no zombies."""
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            words = (place / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if int(words[2]) == group and words[0] != "Z":
                yield int(place.name)


def compare(own: Experiment, expected: dict[str, dict[str, str]], count: Count) -> None:
    """Notes which runs of a finished experiment differ from those that nobody killed."""
    count.finished += 1
    found = own.content()
    for name in METHODS:
        if found[name] != expected[name]:
            count.different += 1
            first = next(what for what in expected[name] if found[name].get(what) != expected[name][what])
            count.findings.append(f"{name} differs from {first} on")


def play(kills: int, rounds: int, seed: int, folder: Path) -> Count:
    """So many kills."""
    whole, count, rng = Experiment(folder / "whole", rounds), Count(), Random(f"kills {seed}")
    seconds = play_whole(whole)
    expected = whole.content()
    while count.kills < kills and not count.findings:
        own = Experiment(folder / f"killed-{count.finished}", rounds)
        play_killed(own, seconds, kills, count, rng)
        if not count.findings:
            compare(own, expected, count)
            print(f"{count.kills} kills, {count.finished} experiments finished", file=sys.stderr, flush=True)
    return count


def table(count: Count) -> str:
    """What came of it."""
    finished, runs = count.finished, count.finished * len(METHODS)
    lines = [
        "| kill -9 of what ran | of all its processes | of one | after rounds since the start | finished | same bits |"
    ]
    lines.append("|---:|---:|---:|---:|---:|---:|")
    row = (count.kills, count.whole, count.kills - count.whole, count.playing)
    same = f"{runs - count.different} of {runs} runs"
    return "\n".join([*lines, f"| {' | '.join(map(str, row))} | {finished} experiments | {same} |"])


def main() -> None:
    """Kills, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        count = play(options.kills, options.rounds, options.seed, Path(folder))
    print("\n".join([*count.findings, table(count)]))
    sys.exit(bool(count.findings))


if __name__ == "__main__":
    main()
