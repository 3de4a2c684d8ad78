"""What all settings are made of."""

from math import floor
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Device = Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d+)?)$")]  # as PyTorch names it


class Settings(BaseModel):
    """Frozen settings that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NoSettings(Settings):
    """Nothing to set."""


def rounded(number: float) -> int:
    """The nearest whole number, halves upwards.

    Python's `round` takes halves to the even neighbour, and 0.145 * 100 is a hair below 14.5: neither is what a reader
    of the settings expects.
    """
    return floor(number + 0.5 + 1e-9)
