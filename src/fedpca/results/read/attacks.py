"""What attackers gained in a method's runs, and who paid for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedpca.results.read.runs import Run
from fedpca.runs.folder import AttackLine, RoundLine
from fedpca.settings.attack import NONE, AttackSettings


@dataclass(frozen=True)
class AttackScores:
    """One method under one attack: means over the rounds of the attack and over the seeds; None where not recorded."""

    attackers: int
    success: float | None  # percent of marked test images that are called the target, over the last tested rounds
    weight: float | None  # of all attackers together
    largest_weight: float | None  # of all attackers together, in any round of any seed
    judged: float | None  # share of the attackers that are judged mislabeled
    left_out: float  # share of the attackers whose answer was not used
    bounded: float  # share of the attackers whose influence `[aggregation]` bounded
    innocents_judged: float | None  # how many honest clients with right labels are judged mislabeled


def attack_scores(runs: Sequence[Run]) -> AttackScores | None:
    """What the attackers of one method's runs gained; None where nobody attacks."""
    known = [run for run in runs if "attack" in run.about and any("attack" in line for line in run.rounds)]
    if not known:
        return None
    names = {run.folder: frozenset(run.about["attack"]["clients"]) for run in known}
    lines = [(line, line["attack"], names[run.folder]) for run in known for line in _attacked(run)]
    weights = [weight for _, own, _ in lines if (weight := own.get("weight")) is not None]
    innocents = [len(judged) for _, own, _ in lines if (judged := own["innocents_judged"]) is not None]
    return AttackScores(
        attackers=len(names[known[0].folder]),
        success=_mean([100 * success for run in known for success in _successes(run)]),
        weight=_mean(weights),
        largest_weight=max(weights, default=None),
        judged=_mean([len(judged) / len(who) for _, own, who in lines if (judged := own["judged"]) is not None]),
        left_out=fmean(_share(who, line["left_out"]) for line, _, who in lines),
        bounded=fmean(_share(who, line.get("bounded", {})) for line, _, who in lines),
        innocents_judged=_mean(innocents),
    )


def attack_name(settings: AttackSettings, rounds: int) -> str:
    """What the attackers of a run do, in a few words; that of nobody where they would begin after its end."""
    return settings.words if settings.is_on and settings.since <= rounds else NONE


def _attacked(run: Run) -> list[RoundLine]:
    """The rounds in which anybody attacks; all of them, where nobody does so yet."""
    lines = [line for line in run.rounds if "attack" in line]
    return [line for line in lines if line["attack"].get("clients")] or lines


def _successes(run: Run) -> list[float]:
    """The backdoor's success in the last tested rounds."""
    found: list[AttackLine] = [line["attack"] for line in run.rounds if line["groups"] and "attack" in line]
    last = found[-run.settings.evaluation.last_rounds :]
    return [success for own in last if (success := own.get("success")) is not None]


def _share(who: frozenset[str], named: object) -> float:
    """Which share of the attackers is named."""
    return len(who.intersection(named if isinstance(named, dict) else ())) / len(who)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
