"""What a site has told under differential privacy, on its own disk: what it told stays told, and counts.

STORE/privacy/RUN.json   each report of the run as it left: round and half, its noise, its numbers

A report is written here before it leaves. Who asks again, after a kill, a restart or from an earlier checkpoint, gets
the same numbers again, which tells nothing new. So a run cannot take more than its epsilon by asking twice, and all
runs together no more than the site's policy allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedpca.atomic import LockedError, locked, private_folder, write_json
from fedpca.core import Report
from fedpca.parts.accounting import Released, spent
from fedpca.settings.base import Settings
from fedpca.sites.rules import PolicyError

FOLDER = "privacy"  # in a site's store
PATIENCE = 30.0  # seconds that another process of the same site may take to write
POLL = 0.05


class Told(Settings):
    """One report as it left the site."""

    noise: float  # over the ranges of its numbers
    count: int  # of the numbers that have it
    report: dict[str, float | list[float]]


LEDGER = TypeAdapter(dict[str, Told])
Require = Callable[[list[Released], list[Released]], None]  # refuses what this run, and what all, would have told


@dataclass(frozen=True)
class Budget:
    """What the runs of a site's store have told."""

    store: Path

    def told(self, run: str) -> list[Released]:
        """What one run was told."""
        return [Released(own.noise, own.count) for own in self._read(self._path(run)).values()]

    def told_to_others(self, run: str) -> list[Released]:
        """What all runs but one were told."""
        paths = sorted((self.store / FOLDER).glob("*.json"))
        others = [path for path in paths if path != self._path(run)]
        return [Released(own.noise, own.count) for path in others for own in self._read(path).values()]

    def tell(self, run: str, place: str, new: Told, require: Require) -> Report:
        """The report of one round and half: what was told there before, else the new one, once it is on the disk."""
        private_folder(self.store / FOLDER)
        with _alone(self.store / FOLDER):
            known = self._read(self._path(run))
            if place in known:
                return known[place].report
            own = [Released(one.noise, one.count) for one in (*known.values(), new)]
            require(own, [*own, *self.told_to_others(run)])
            written = {key: one.model_dump(mode="json") for key, one in {**known, place: new}.items()}
            write_json(self._path(run), written)
        return new.report

    def _path(self, run: str) -> Path:
        return self.store / FOLDER / f"{run}.json"

    def _read(self, path: Path) -> dict[str, Told]:
        """A run's ledger; one that cannot be read is an error, since what was told would count no more."""
        if not path.exists():
            return {}
        try:
            return LEDGER.validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise PolicyError(
                f"{path}, which says what this site told under differential privacy, cannot be read "
                f"({str(error).splitlines()[0]}): put it back from a copy; without it nothing leaves",
                "its record of what it told under differential privacy cannot be read, so it tells nothing",
            ) from None


def spent_in_store(store: Path, delta: float) -> tuple[float, int]:
    """The epsilon that all runs of a store have spent, and how many runs these are."""
    budget = Budget(store)
    releases = budget.told_to_others("")
    return (spent(releases, delta) if releases else 0.0), len(list((store / FOLDER).glob("*.json")))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits for another process of the same site."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with locked(folder, f"{folder} is being written by another process"):
                yield
                return
        except LockedError:
            if time.monotonic() > end:
                raise
            time.sleep(POLL)
