"""The paper's claims, read and checked."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import ValidationError, model_validator

from fedpca.errors import SettingsError
from fedpca.results.tables.facts import Study
from fedpca.settings.base import Settings

CLAIMS = Path(__file__).with_name("claims.toml")

Kind = Literal["compare", "rho", "setting", "clients", "found", "std", "share", "picture"]
NEEDED = {
    "compare": ("pairs", "scores"),
    "rho": ("methods", "scores"),
    "setting": ("setting", "methods", "scores"),
    "clients": ("methods", "higher"),
    "found": ("methods",),
    "std": (),
    "share": ("methods",),
    "picture": ("figure",),
}


class Claim(Settings):
    """What the paper says, and what shows it; claims.toml explains each kind."""

    number: str
    topic: str
    says: str
    paper: str  # what the paper has for it, in words
    kind: Kind
    expect: Literal["above", "below", "as-printed"] = "above"
    pairs: tuple[tuple[str, str], ...] = ()
    methods: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    setting: str | None = None
    within: float | None = None
    slower: tuple[str, ...] = ()
    higher: tuple[
        tuple[Literal["loss", "dispersion"], str, str], ...
    ] = ()  # quantity, of whom it is higher, than whose
    figure: str | None = None
    studies: tuple[Study, ...] = ()  # none: all
    datasets: tuple[str, ...] = ()  # of the paper; none: all
    only_without_noise: bool = False

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Claim:
        if lacking := [name for name in NEEDED[self.kind] if not getattr(self, name)]:
            raise ValueError(f"claim {self.number} of kind {self.kind!r} needs {', '.join(lacking)}")
        return self


class Claims(Settings):
    """The file of claims."""

    groups: dict[str, tuple[str, ...]]  # names for several methods
    claims: tuple[Claim, ...]

    def members(self, name: str) -> tuple[str, ...]:
        """The methods of a group, or the one method of that name."""
        return self.groups.get(name, (name,))


def read_claims(path: Path = CLAIMS) -> Claims:
    """The file of claims, checked."""
    try:
        return Claims.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"the file of claims {path} cannot be used: {error}") from None
