"""What all settings are made of."""

from collections.abc import Mapping
from math import floor
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
DEVICE = r"^(cpu|mps|cuda(:\d+)?)$"  # as PyTorch names it
Device = Annotated[str, Field(pattern=DEVICE)]
Table = dict[str, object]  # what a TOML table holds


def split_names(value: object) -> object:
    """The names that one text separates by commas: Flower's configs have no lists."""
    return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(split_names)]  # a list of names, or one text


class Settings(BaseModel):
    """Frozen settings that refuse unknown keys.

    >>> from fedpca import Settings
    >>> class Mine(Settings):
    ...     strength: float = 0.5
    >>> Mine(strength=2)
    Mine(strength=2.0)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    RENAMED: ClassVar[Mapping[str, str]] = {}  # a key of an earlier version: its present one, dotted if in a table
    REPLACED: ClassVar[Mapping[str, tuple[str, str]]] = {}  # one whose meaning is gone: the key to set, how it differs
    SHORTHAND: ClassVar[str] = ""  # the key that a plain value in place of a table stands for

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, given: object) -> object:
        plain = cls.SHORTHAND and not isinstance(given, Mapping | BaseModel)
        return {cls.SHORTHAND: given} if plain else given


class NoSettings(Settings):
    """Nothing to set."""


def rounded(number: float) -> int:
    """The nearest whole number, halves upwards.

    Python's `round` takes halves to the even neighbour, and 0.145 * 100 is a hair below 14.5: neither is what a reader
    of the settings expects.
    """
    return floor(number + 0.5 + 1e-9)
