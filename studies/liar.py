"""Whether what one liar gains stays within docs/threats.md: `python -m studies.liar [RUNS]`.

Reads the runs of `fedpca run attacks`, below runs/attacks unless others are named. Prints each promise, how many pairs
of method and attack keep it, and every one that does not, with its number. Each pair is compared with the runs of the
same method in which nobody attacks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpca.results.read.runs import find_runs
from fedpca.results.tables.attacks import attack_groups, attack_names
from fedpca.results.tables.rows import Results, Row, tabulate
from fedpca.settings.attack import NONE

MAX_SHARES, MAX_POINTS, MAX_SUCCESS = 3.0, 3.0, 10.0  # equal shares; percentage points; percent


@dataclass(frozen=True)
class Pair:
    """One method under one attack, and where nobody attacks."""

    place: str
    attack: str
    under: Row
    without: Row | None
    clients: int

    @property
    def shares(self) -> float | None:
        """The largest weight of the attackers in any round, in multiples of their equal share."""
        own = self.under.attack
        if not own or own.largest_weight is None:
            return None
        return own.largest_weight * self.clients / own.attackers

    @property
    def innocents(self) -> float | None:
        """How many more innocents are judged mislabeled than where nobody attacks, on average."""
        own, other = self.under.attack, self.without.attack if self.without else None
        if not own or not other or own.innocents_judged is None or other.innocents_judged is None:
            return None
        return own.innocents_judged - other.innocents_judged

    @property
    def points(self) -> float | None:
        """By how much the average accuracy differs, in percentage points."""
        return _average(self.under) - _average(self.without) if self.without else None

    @property
    def success(self) -> float | None:
        """The backdoor's success in percent."""
        return self.under.attack.success if self.under.attack else None


@dataclass(frozen=True)
class Promise:
    """What docs/threats.md says of a deployment's bounds."""

    words: str
    number: Callable[[Pair], float | None]
    is_kept: Callable[[float], bool]
    of: Callable[[Results, str], bool]  # the scenarios and attacks that it is about


def _is_bounded(results: Results, attack: str) -> bool:
    return results.settings.aggregation.max_weight > 0


def _has_robust_rule(results: Results, attack: str) -> bool:
    return _is_bounded(results, attack) and results.settings.aggregation.rule != "mean" and attack == "backdoor"


PROMISES = (
    Promise(
        f"no more than {MAX_SHARES:g} equal shares", lambda p: p.shares, lambda x: x <= MAX_SHARES + 1e-9, _is_bounded
    ),
    Promise("no further innocent judged mislabeled", lambda p: p.innocents, lambda x: x <= 1e-9, _is_bounded),
    Promise(
        f"average accuracy within {MAX_POINTS:g} points",
        lambda p: p.points,
        lambda x: abs(x) <= MAX_POINTS,
        _is_bounded,
    ),
    Promise(
        f"plain backdoor below {MAX_SUCCESS:g} % with a robust rule",
        lambda p: p.success,
        lambda x: x < MAX_SUCCESS,
        _has_robust_rule,
    ),
)


def pairs(tables: Sequence[Results], promise: Promise) -> Iterator[Pair]:
    """The pairs of method and attack that a promise is about, where it was played."""
    for scenarios in attack_groups(tables):
        named = dict(zip(attack_names(scenarios), scenarios, strict=True))
        without = {row.method: row for row in named[NONE].rows} if NONE in named else {}
        for attack, results in named.items():
            if attack == NONE or not promise.of(results, attack):
                continue
            place = f"one of {results.clients}, {results.settings.aggregation.rule}"
            for row in results.rows:
                yield Pair(place, attack, row, without.get(row.method), results.clients)


def judgement(tables: Sequence[Results], promise: Promise) -> list[str]:
    """How many pairs keep a promise, and each that does not."""
    numbers = [(own, number) for own in pairs(tables, promise) if (number := promise.number(own)) is not None]
    missed = [(own, number) for own, number in numbers if not promise.is_kept(number)]
    head = f"{promise.words}: {len(numbers) - len(missed)} of {len(numbers)}"
    return [head, *(f"  {own.place}: {own.under.method}, {own.attack}: {number:.2f}" for own, number in missed)]


def _average(row: Row) -> float:
    return next(iter(row.scores.values())).average.mean


def main() -> None:
    """Prints what is kept and what is not."""
    parser = argparse.ArgumentParser(prog="python -m studies.liar", description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, default=[Path("runs/attacks")])
    tables = tabulate(find_runs(parser.parse_args().runs))
    for promise in PROMISES:
        print("\n".join(judgement(tables, promise)))


if __name__ == "__main__":
    main()
