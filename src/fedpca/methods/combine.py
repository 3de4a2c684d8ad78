"""A + B: two methods as one, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from fedpca.core import Method, Recipe, Stage, Train
from fedpca.errors import UserError
from fedpca.settings.base import Settings, Share

# the paper's; any two methods can be combined
LISTED = (("qfedavg", "median"), ("fedce", "rfa"), ("fedga", "fedcorr"), ("fedism", "fednoro"))
Sides = tuple[tuple[str, Recipe], tuple[str, Recipe]]


class MixSettings(Settings):
    """What `[method."A+B"]` takes."""

    share: Share = 0.5  # of A's model in the mean of both


def plus(a: Method, b: Method, plain: Recipe, share: float) -> Method:
    """A + B: one local training with what either changes of `plain`, two aggregations, their models averaged.

    Each keeps its own memory and opinions. Where both change the same thing of selection or training, B's change
    counts. `share` is the part of A's model.

    >>> from fedpca import Plan, base, compose, plus
    >>> plan = Plan(rounds=3)
    >>> plus(compose("fedavg", plan), compose("median", plan), base(plan), share=0.5).name
    'fedavg+median'
    """
    names = (a.name, b.name if b.name != a.name else f"{b.name} again")
    stages = (_joint_stage(start, length, a, b, names, plain, share) for start, length in _segments(a, b))
    return Method(f"{a.name}+{b.name}", tuple(stages))


def _segments(a: Method, b: Method) -> Iterator[tuple[int, int | None]]:
    """First round and length of each stretch in which neither method changes its stage; the last has no end."""
    starts = sorted({1 + before for method in (a, b) for before in _lengths(method)})
    yield from ((start, end - start) for start, end in pairwise(starts))
    yield starts[-1], None


def _lengths(method: Method) -> Iterator[int]:
    """How many rounds come before each stage."""
    before = 0
    yield before
    for stage in method.stages[:-1]:
        if stage.rounds is None:
            return
        before += stage.rounds
        yield before


def _joint_stage(
    start: int, length: int | None, a: Method, b: Method, names: tuple[str, str], plain: Recipe, share: float
) -> Stage:
    from fedpca.parts.sides import SidedEnter

    (one, one_begins), (two, two_begins) = a.at(start), b.at(start)
    entering = [(names[0], one.enter)] * one_begins + [(names[1], two.enter)] * two_begins
    sides = (names[0], one.recipe), (names[1], two.recipe)
    return Stage(_joint_recipe(sides, plain, share), length, SidedEnter(tuple(entering)))


def _joint_recipe(sides: Sides, plain: Recipe, share: float) -> Recipe:
    from fedpca.parts.sides import MixRules, SidedDiagnose, SidedPart, SidedReports

    reports = tuple((side, recipe.report) for side, recipe in sides if recipe.report)
    (one, first), (two, second) = sides
    changed = [SidedPart(side, recipe.select) for side, recipe in sides if recipe.select != plain.select]
    return Recipe(
        report=SidedReports(reports) if reports else None,
        diagnose=SidedDiagnose(tuple((side, recipe.diagnose) for side, recipe in sides)),
        select=changed[-1] if changed else plain.select,
        train=_joint_training(sides, plain),
        aggregate=MixRules((one, first.aggregate), (two, second.aggregate), share),
        cohort=second.cohort if second.cohort != plain.cohort else first.cohort,
    )


def _joint_training(sides: Sides, plain: Recipe) -> Train:
    """The training that either changes; if both do, part by part."""
    from fedpca.parts.abilities import ability
    from fedpca.parts.sides import SidedPart, SidedReports

    changed = [(side, recipe.train) for side, recipe in sides if recipe.train != plain.train]
    if not changed:
        return plain.train
    usual, own = ability(plain.train, "parts"), [(side, ability(train, "parts")) for side, train in changed]
    if usual is None or any(parts is None or parts.keys() != usual.keys() for _, parts in own):
        if len(changed) > 1:
            raise UserError(f"{' and '.join(side for side, _ in sides)} both replace local training as a whole")
        return SidedPart(*changed[0])
    joint: dict[str, Any] = {}
    for side, parts in own:
        joint |= _changes(side, parts, usual)
    if after := tuple((side, parts["after"]) for side, parts in own if parts["after"]):
        joint["after"] = SidedReports(after)
    for side, parts in own:
        _require_ties(side, parts, joint)
    train: Train = ability(plain.train, "with_parts")(joint)
    return train


def _require_ties(side: str, parts: Mapping[str, Any], joint: Mapping[str, Any]) -> None:
    """Refuses a combination in which the other method takes away a part that one of this side's relies on."""
    from fedpca.parts.abilities import ability

    tied = [name for part in parts.values() for name in ability(part, "tied_to") or ()]
    for name in tied:
        if name in joint and getattr(joint[name], "part", joint[name]) != parts[name]:
            raise UserError(
                f"{side} needs the `{name}` of its own local training, which the other method replaces: name {side} "
                "second, so that its own counts"
            )


def _changes(side: str, parts: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of local training that differ, those that look at the client bound to their side."""
    from fedpca.parts.sides import SidedPart

    differing = {name: part for name, part in parts.items() if part != usual[name] and name != "after"}
    return {name: SidedPart(side, part) if name in ("loss", "step") else part for name, part in differing.items()}
