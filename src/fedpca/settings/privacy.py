"""What is done so that nobody learns too much from what clients send."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from fedpca.settings.base import NonNegative, Positive, Settings

Delta = Annotated[float, Field(gt=0, le=0.01)]


def _split(value: object) -> object:
    """The two numbers of one text: Flower's configs have no lists."""
    return tuple(value.split(",")) if isinstance(value, str) else value


Range = Annotated[tuple[float, float], BeforeValidator(_split)]


class ReportPrivacy(Settings):
    """What is done to the numbers of a report before they leave a site.

    >>> from fedpca.settings.privacy import ReportPrivacy
    >>> ReportPrivacy(epsilon=8).delta
    1e-05
    """

    clip: Positive | None = None  # the largest amount that a number may have
    noise: NonNegative = 0.0  # deviation of the normal noise that is added to each number
    epsilon: Positive | None = None  # of all that a client reports in the whole run: local differential privacy
    delta: Delta = 1e-5  # of the same
    ranges: dict[str, Range] = Field(default_factory=dict)  # lowest and highest that counts, in place of the usual

    @model_validator(mode="after")
    def _one_kind_of_noise(self) -> ReportPrivacy:
        if self.epsilon is not None and (self.clip is not None or self.noise):
            got = f"epsilon = {self.epsilon}, clip = {self.clip}, noise = {self.noise}"
            raise ValueError(f"{got}: epsilon sets ranges and noise itself; leave clip and noise out, or epsilon")
        if self.ranges and self.epsilon is None:
            raise ValueError(f"ranges of {', '.join(self.ranges)} are for epsilon, which is not set: set it")
        for key, (low, high) in self.ranges.items():
            if not low < high:
                raise ValueError(f"ranges.{key} must be two numbers, the lower first, got {low:g} and {high:g}")
        return self


class CentralPrivacy(Settings):
    """Noise on the sum of the clients' updates, at the server."""

    epsilon: Positive | None = None  # of one client's updates in the whole run; None: no noise
    delta: Delta = 1e-5  # of the same
    clip: Positive | None = None  # length to which each update is shortened

    @model_validator(mode="after")
    def _both_or_neither(self) -> CentralPrivacy:
        if (self.epsilon is None) != (self.clip is None):
            got = f"epsilon = {self.epsilon}, clip = {self.clip}"
            raise ValueError(f"{got}: give both, or neither: noise is measured by the length that an update can have")
        return self


class PrivacySettings(Settings):
    """Differential privacy of a run; without settings there is none."""

    reports: ReportPrivacy = ReportPrivacy()
    central: CentralPrivacy = CentralPrivacy()
