"""Whether what a method did so far would have been another thing, had the run been planned for more or fewer rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass

from fedpca.core import Method, Stage

PACKAGE = __name__.partition(".")[0]


def depends_on_rounds(method: Method, replanned: Method, played: int) -> bool:
    """Whether the rounds played so far depend on their number: by the stages, or by a part that reads it.

    `replanned` is the same method, built for another number of rounds. A part of another package may read that number,
    unless it says that it does not: `parts.abilities.ReadsRounds`.

    >>> from fedpca import Plan, compose
    >>> [depends_on_rounds(*(compose(name, Plan(T)) for T in (30, 60)), 30) for name in ("fedavg", "fedga", "fedcorr")]
    [False, True, True]
    """
    rounds = range(1, played + 1)
    return any(_differ(method.at(number), replanned.at(number)) for number in rounds)


def _differ(one: tuple[Stage, bool], two: tuple[Stage, bool]) -> bool:
    """Whether two plans do different things in a round; each says the stage, and whether it begins there."""
    (stage, begins), (other, other_begins) = one, two
    if begins != other_begins or stage.recipe != other.recipe or (begins and stage.enter != other.enter):
        return True
    recipe = stage.recipe  # cohort, aggregation and `enter` are not told how many rounds there are
    return any(map(reads_rounds, (recipe.report, recipe.diagnose, recipe.select, recipe.train)))


def reads_rounds(part: object) -> bool:
    """Whether a part, or one inside it, may read the number of rounds when it is called."""
    from fedpca.parts.abilities import ability

    said = ability(part, "reads_rounds")
    if said is not None:
        return bool(said)
    if isinstance(part, tuple | list):
        return any(map(reads_rounds, part))
    return _is_foreign(part) or any(map(reads_rounds, _inside(part)))


def _inside(part: object) -> Iterable[object]:
    return (getattr(part, field.name) for field in fields(part)) if is_dataclass(part) else ()


def _is_foreign(part: object) -> bool:
    """Whether a part is code of another package."""
    return callable(part) and (getattr(part, "__module__", None) or "").partition(".")[0] != PACKAGE
