"""An attack in a simulation: who forges what, from which round on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from fedpca.settings.base import Count, Names, Settings, Share

NONE = "none"


class AttackSettings(Settings):
    """What clients do that attack the federation; without settings nobody does."""

    kind: str = NONE  # of `fedpca list attacks`, several joined by +
    says: dict[str, float | tuple[float, ...]] = Field(default_factory=dict)  # in reports in place of the truth
    clients: Names = ()  # the attackers; drawn from the common ones if not given
    share: Share = 0.0  # of the clients that attack, one at least
    since: Count = 1  # the first round in which they do
    strength: float | None = None  # of every part of the attack that has one; its own if not given
    target: Annotated[int, Field(ge=0)] = 0  # the class, counted from 0, that the backdoor's mark stands for
    poisoned: Annotated[float, Field(gt=0, le=1)] = 0.5  # share of an attacker's images that have the mark

    @property
    def is_on(self) -> bool:
        """Whether anybody attacks."""
        return self.kind != NONE or bool(self.says)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The parts of the attack, in the order in which they act."""
        return () if self.kind == NONE else tuple(self.kind.split("+"))

    @property
    def words(self) -> str:
        """What the attackers do, in a few words."""
        lies = [f"says {key} {value}" for key, value in self.says.items()]
        return ", ".join([*([self.kind] if self.kinds else []), *lies])

    @field_validator("kind")
    @classmethod
    def _once(cls, kind: str) -> str:
        parts = kind.split("+")
        if len(set(parts)) < len(parts) or (NONE in parts and len(parts) > 1):
            raise ValueError(f"needs names joined by +, none twice, or {NONE!r} alone, got {kind!r}")
        return kind

    @model_validator(mode="after")
    def _attackers_are_given_once(self) -> AttackSettings:
        if self.clients and self.share:
            raise ValueError(f"attack.clients = {list(self.clients)} and attack.share = {self.share}: give one of them")
        return self
