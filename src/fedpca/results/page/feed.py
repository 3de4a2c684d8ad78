"""The runs below a folder as they grow, and what a page that shows them does not have yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs

from fedpca.errors import RunError
from fedpca.results.page.data import key, news
from fedpca.results.page.page import in_order, parts
from fedpca.results.page.words import enumeration, quantity
from fedpca.results.read.runs import Run, with_differences
from fedpca.results.read.tail import Tail
from fedpca.runs.folder import SETTINGS, is_run


@dataclass(frozen=True)
class FolderState:
    """What a folder held at one moment."""

    runs: list[Run]  # those that have played a round, in the page's order
    words: str
    is_done: bool
    errors: tuple[str, ...] = ()  # what is wrong with run folders that were passed over


@dataclass
class RunFeed:
    """The runs below a folder, each read as it grows."""

    folder: Path
    stall_seconds: float  # without a new round, after which nothing seems to happen any more
    tails: dict[Path, Tail] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)  # browsers ask from threads of their own

    def state(self) -> FolderState:
        """The runs as they are now; reads what is new."""
        with self.lock:
            there = [path.parent for path in sorted(self.folder.rglob(SETTINGS)) if is_run(path.parent)]
            self.tails = {path: self.tails.get(path) or Tail(path) for path in there}
            errors: list[str] = []
            runs = in_order(with_differences([run for run in self._read(errors) if run.rounds]))
            idle = min((self.tails[run.folder].idle_seconds() for run in runs if not run.is_done), default=0.0)
        words = " ".join((self._words(runs, idle), *(f"Passed over: {error}." for error in errors)))
        return FolderState(runs, words, bool(runs) and all(run.is_done for run in runs), tuple(errors))

    def _read(self, errors: list[str]) -> Iterator[Run]:
        """Each run as it is now; what is wrong with those that cannot be read goes to `errors`."""
        for tail in self.tails.values():
            try:
                yield tail.read()
            except RunError as error:
                errors.append(str(error))

    def _words(self, runs: list[Run], idle: float) -> str:
        going = [run for run in runs if not run.is_done]
        if not runs:
            return "Waiting for the first round."
        if not going:
            return f"Finished: {quantity(len(runs), 'run')}. This page no longer changes."
        names = [f"{run.label()}, seed {run.seed} (round {len(run.rounds)} of {run.settings.rounds})" for run in going]
        longest = max(line.get("seconds") or 0.0 for run in going for line in run.rounds)
        if idle > max(self.stall_seconds, 5 * longest):
            time = quantity(round(idle / 60), "minute") if idle >= 60 else quantity(round(idle), "second")
            return f"No new round for {time}: {enumeration(names, 4)}."
        finished = f" Finished: {quantity(len(runs) - len(going), 'run')}." if len(going) < len(runs) else ""
        return f"Under way: {enumeration(names, 4)}.{finished}"


def answer(state: FolderState, query: str) -> dict[str, object]:
    """What is new for a page that says what it shows (key) and has (rounds of each run)."""
    asked = parse_qs(query)
    common: dict[str, object] = {"state": state.words, "done": state.is_done}
    try:
        have = [int(number) for number in asked["have"][0].split(",")]
    except (KeyError, ValueError):
        return {**common, "reload": True}
    played = [len(run.rounds) for run in state.runs]
    if asked.get("key") != [key(state.runs)] or any(a > b for a, b in zip(have, played, strict=True)):
        return {**common, "reload": True}
    return common if have == played else {**common, "runs": news(state.runs, have), "parts": parts(state.runs)}
