"""The logs of all runs while they are played.

What is logged is read from the run's own record: the seconds of a round, and the rounds before a resumed run, are only
there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedpca.atomic import write_json
from fedpca.errors import UserError
from fedpca.runs.cell import Cell, Watch
from fedpca.runs.folder import RoundLine
from fedpca.runs.follow import Follower
from fedpca.runs.trackers.base import Log, Status, Tracker, scalars_of, without_password

IDS = "trackers.json"  # in the run folder: what each tracker calls the run


@contextmanager
def tracking(trackers: Sequence[Tracker], cells: Sequence[Cell], say: Callable[[str], None]) -> Iterator[Watch]:
    """Logs every round that it is given; whatever ends this closes the logs and says in them how it ended.

    The first run's logs are opened at once: what does not start stops the experiment before it trains. What fails later
    is said once per tracker, and the training goes on.
    """
    logs = _Logs(trackers, say)
    status: Status = "failed"
    try:
        if cells:
            logs.start(cells[0])
        yield logs.on_round
        status = "finished"
    except KeyboardInterrupt:
        status = "stopped"
        raise
    finally:
        logs.close(status)


@dataclass
class _RunLog:
    """One tracker's log of one run, and the run's record from the round on that the log does not have."""

    cell: Cell
    log: Log
    record: Follower

    def catch_up(self) -> None:
        """Logs what the record has gained, but for rounds that were logged before the run was resumed."""
        for line in self.record.new_rounds():
            self.log.add(line["round"], scalars_of(line, self.cell.settings.evaluation.accuracy))


@dataclass
class _Logs:
    """The open logs of all runs, which may go on side by side."""

    trackers: Sequence[Tracker]
    say: Callable[[str], None]
    by_run: dict[Path, dict[Tracker, _RunLog]] = field(default_factory=dict)  # by run folder
    reported: set[Tracker] = field(default_factory=set)  # that they fail

    def start(self, cell: Cell) -> None:
        """Opens the run's logs; one that does not open is an error that the user can fix."""
        for tracker in self.trackers:
            try:
                self._open(cell, tracker)
            except Exception as error:
                raise UserError(
                    f"--log-to {tracker.option} does not start: {_reason(error)}\n"
                    "fix that, or run without it: the run folder records every round anyway"
                ) from None

    def on_round(self, cell: Cell, line: RoundLine) -> None:
        """Brings the run's logs up to its record, and closes them after the last round."""
        if cell.folder not in self.by_run:
            self.by_run[cell.folder] = {}
            for tracker in self.trackers:
                with self._give_up_on_error(cell.folder, tracker):
                    self._open(cell, tracker)
        for tracker, own in list(self.by_run[cell.folder].items()):
            with self._give_up_on_error(cell.folder, tracker):
                own.catch_up()
        if line["round"] == cell.settings.rounds:
            self._end(cell.folder, "finished")

    def close(self, status: Status) -> None:
        """Closes what is open."""
        for folder in self.by_run:
            self._end(folder, status)

    def _open(self, cell: Cell, tracker: Tracker) -> None:
        path = cell.folder / IDS
        ids = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        log = tracker.open_log(cell, ids.get(tracker.option))
        self.by_run.setdefault(cell.folder, {})[tracker] = _RunLog(cell, log, Follower(cell.folder, log.last_round))
        write_json(path, {**ids, tracker.option: log.id})

    def _end(self, folder: Path, status: Status) -> None:
        for tracker, own in list(self.by_run[folder].items()):
            with self._give_up_on_error(folder, tracker):
                del self.by_run[folder][tracker]
                own.log.end(status)

    @contextmanager
    def _give_up_on_error(self, folder: Path, tracker: Tracker) -> Iterator[None]:
        """Gives up the run's log where it fails, says so if it is the tracker's first time, and goes on."""
        try:
            yield
        except Exception as error:
            if tracker not in self.reported:
                self.reported.add(tracker)
                self.say(
                    f"--log-to {tracker.option} fails: {_reason(error)}\n"
                    "the training goes on, and the run folders hold every round; the next run is tried again"
                )
            if own := self.by_run[folder].pop(tracker, None):
                with suppress(Exception):
                    own.log.end("failed")


def _reason(error: Exception) -> str:
    return without_password(f"{error}" or type(error).__name__)
