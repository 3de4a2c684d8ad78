"""The kinds of attack by name; `A+B` does what both do, and what A sends is what B begins with.

A kind of your own is an `AttackKind` that `attack.kind = "package.module:name"` names, or an entry point of the group
`fedpca.attacks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from fedpca.errors import SettingsError
from fedpca.settings.attack import AttackSettings
from fedpca.settings.registry import Registry

if TYPE_CHECKING:
    from fedpca.simulate.attack.forging import Attack

LIED_ABOUT = ("loss", "dispersion", "slope", "agreement", "confidence")  # numbers of reports, by their names there


class Making(NamedTuple):
    """What an attack is made from."""

    strength: float
    settings: AttackSettings
    classes: int


@dataclass(frozen=True)
class AttackKind:
    """One thing that attackers do."""

    name: str
    summary: str
    make: Callable[[Making], Attack]
    strength: float | None = None  # unless `attack.strength` is given; None: it has none


def _forging() -> ModuleType:
    """What attacks are made of; imported when one is made, so that a list of their names needs no PyTorch."""
    return import_module("fedpca.simulate.attack.forging")


def _attack(**parts: object) -> Attack:
    made: Attack = _forging().Attack(**parts)
    return made


def _forge(part: str, sees_others: bool = False, takes_strength: bool = True) -> Callable[[Making], Attack]:
    """An attack on updates alone: the part's name, and what it has to know."""

    def make(by: Making) -> Attack:
        own = (by.strength,) if takes_strength else ()
        return _attack(forge=getattr(_forging(), part)(*own), sees_others=sees_others)

    return make


def _backdoor(by: Making) -> Attack:
    poison = _forging().Backdoor(by.settings.target, by.settings.poisoned)
    return _attack(poison=poison, mark=_forging().with_mark, target=by.settings.target)


def _reversed_labels(by: Making) -> Attack:
    return _attack(poison=_forging().ReversedLabels(by.classes))


def _reversed_step(by: Making) -> Attack:
    return _attack(forge=_forging().ScaledStep(-by.strength))


def _joining_size(by: Making) -> Attack:
    return _attack(forge=_forging().ClaimedSize(by.strength), joins_with=int(by.strength))


def _extreme(key: str, highest: bool) -> AttackKind:
    """The lie of one number."""
    word = "high" if highest else "low"

    def make(by: Making) -> Attack:
        return _attack(lie=_forging().Extreme(key, highest))

    return AttackKind(f"{word}-{key}", f"says the {word}est {key} that can be", make)


_OWN = (
    AttackKind("backdoor", "trains on images with a mark, called the class attack.target", _backdoor),
    AttackKind("reversed-labels", "trains on labels from the other end of the classes", _reversed_labels),
    AttackKind("scaled-step", "sends its step, so many times as long", _forge("ScaledStep"), 20),
    AttackKind("reversed-step", "sends the opposite of its step, so many times as long", _reversed_step, 20),
    AttackKind("noise", "adds noise, so many times as large as its step", _forge("AddedNoise"), 10),
    AttackKind("random-weights", "sends random weights, so many times the model's size", _forge("RandomWeights"), 10),
    AttackKind("not-finite", "sends weights that are no numbers", _forge("NotNumbers", takes_strength=False)),
    AttackKind("free-ride", "sends the model back untrained, with so much noise", _forge("FreeRide"), 0),
    AttackKind(
        "collude", "sends the mean of all attackers' updates, as they all do", _forge("SameUpdate", True, False)
    ),
    AttackKind(
        "within-spread", "sends the honest mean less so many honest deviations", _forge("WithinTheSpread", True), 1.5
    ),
    AttackKind("size", "says that it trained on so many samples", _forge("ClaimedSize"), 1e12),
    AttackKind("joining-size", "says so when it joins, too", _joining_size, 1e12),
    *(_extreme(key, highest) for key in LIED_ABOUT for highest in (True, False)),
)
ATTACKS = Registry("attack", AttackKind, {kind.name: kind for kind in _OWN}, group="fedpca.attacks")


def check_attack(settings: AttackSettings) -> None:
    """Refuses a kind of attack that there is not, and a strength that nothing of the attack has."""
    try:
        kinds = [ATTACKS[name] for name in settings.kinds]
    except SettingsError as error:
        raise SettingsError(f"attack.kind: {error}; `fedpca list attacks` shows them") from None
    if settings.strength is not None and all(kind.strength is None for kind in kinds):
        raise SettingsError(f"attack.strength = {settings.strength}, but {settings.kind!r} has none: leave it out")


def attacks_of(settings: AttackSettings, classes: int) -> Sequence[Attack]:
    """What the attackers do, part by part."""
    from fedpca.simulate.attack.forging import Attack, Says

    kinds = [ATTACKS[name] for name in settings.kinds]
    made = [kind.make(Making(_strength(kind, settings), settings, classes)) for kind in kinds]
    return [*made, *([Attack(lie=Says(settings.says))] if settings.says else [])]


def _strength(kind: AttackKind, settings: AttackSettings) -> float:
    given = kind.strength if settings.strength is None else settings.strength
    return 0.0 if kind.strength is None or given is None else given
