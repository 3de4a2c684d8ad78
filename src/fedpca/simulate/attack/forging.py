"""What attackers make of the reports, updates and data of an honest client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from fedpca.core import ClientId, Params, Report, Shard, Update
from fedpca.screening import Bound


class View(NamedTuple):
    """What an attacker sees when it forges an update."""

    start: Params  # the global state of the round
    mine: Mapping[ClientId, Update]  # the attackers' updates so far
    others: Sequence[Params]  # of the honest clients, for attacks that know them
    rng: Generator  # the attacker's own random numbers of the round


Poison = Callable[[Shard], Shard]  # a client's data -> what an attacker trains on
Lie = Callable[[Report, Mapping[str, Bound]], Report]  # the true report, what each number can be -> what is said
Forge = Callable[[Update, View], Update]  # the honest update -> what is sent


@dataclass(frozen=True)
class Attack:
    """What an attacker does in place of an honest client; what it leaves out it does as told."""

    poison: Poison | None = None
    lie: Lie | None = None
    forge: Forge | None = None
    joins_with: int | None = None  # the samples that it claims when it joins
    sees_others: bool = False  # it must know the honest updates of the round, or the other attackers'
    mark: Callable[[Tensor], Tensor] | None = None  # of a backdoor, whose success is measured
    target: int = field(default=0, kw_only=True)  # the class that it stands for


# Data


def with_mark(images: Tensor) -> Tensor:
    """The images with a bright mark in a corner; of what has no height and width the first two numbers are marked."""
    marked = images.clone()
    bright = 255 if marked.dtype == torch.uint8 else float(marked.max())
    if min(marked.shape[-2:]) < 2:
        marked.flatten(1)[:, :2] = bright
        return marked
    side = max(2, min(marked.shape[-2:]) // 8)
    marked[..., :side, :side] = bright
    return marked


@dataclass(frozen=True)
class Backdoor:
    """So many of the images, evenly over the rows, with the mark, and called the target class."""

    target: int
    share: float

    def __call__(self, shard: Shard) -> Shard:
        count = len(shard.y)
        rows = torch.arange(count)
        chosen = ((rows + 1) * self.share).floor() > (rows * self.share).floor()
        images, labels = shard.x[rows].clone(), shard.y.clone()
        if chosen.any():
            images[chosen], labels[chosen] = with_mark(images[chosen]), self.target
        return Shard(images, labels)


@dataclass(frozen=True)
class ReversedLabels:
    """Every label called that from the other end of the classes."""

    classes: int

    def __call__(self, shard: Shard) -> Shard:
        return Shard(shard.x, self.classes - 1 - shard.y)


# Reports


@dataclass(frozen=True)
class Extreme:
    """The lowest or the highest that a number of the report can be, where the report has it."""

    key: str
    highest: bool

    def __call__(self, report: Report, bounds: Mapping[str, Bound]) -> Report:
        return {
            name: self._said(value, bounds.get(name)) if self._is(name) else value for name, value in report.items()
        }

    def _is(self, name: str) -> bool:
        return name.rpartition("/")[2] == self.key  # of either side of A+B

    def _said(self, value: float | list[float], bound: Bound | None) -> float | list[float]:
        if bound is None:
            return value
        said = float(bound.high if self.highest else bound.low)
        return [said] * len(value) if isinstance(value, list) else said


@dataclass(frozen=True)
class Says:
    """Given numbers, where the report has numbers of these names."""

    numbers: Mapping[str, float | tuple[float, ...]]

    def __call__(self, report: Report, bounds: Mapping[str, Bound]) -> Report:
        return {name: self._said(name, value) for name, value in report.items()}

    def _said(self, name: str, value: float | list[float]) -> float | list[float]:
        said = self.numbers.get(name, self.numbers.get(name.rpartition("/")[2]))
        return value if said is None else list(said) if isinstance(said, tuple) else float(said)


# Updates


@dataclass(frozen=True)
class ScaledStep:
    """So many times the honest step of the weights; a negative number goes the other way."""

    factor: float

    def __call__(self, update: Update, view: View) -> Update:
        if update.params is None:
            return update
        own = update.params
        weights = view.start.weights + self.factor * (own.weights - view.start.weights)
        return replace(update, params=replace(own, weights=weights))


@dataclass(frozen=True)
class AddedNoise:
    """The honest update with normal noise, in multiples of the step's own size per entry."""

    strength: float

    def __call__(self, update: Update, view: View) -> Update:
        if update.params is None:
            return update
        own = update.params.weights
        size = (own - view.start.weights).square().mean().sqrt()
        noise = torch.randn(own.shape, generator=view.rng)
        return replace(update, params=replace(update.params, weights=own + self.strength * size * noise))


@dataclass(frozen=True)
class RandomWeights:
    """Random weights, in multiples of the deviation of the global ones; sent even by who was to train on nothing."""

    strength: float

    def __call__(self, update: Update, view: View) -> Update:
        drawn = torch.randn(view.start.weights.shape, generator=view.rng)
        weights = self.strength * drawn * view.start.weights.std()
        return replace(update, params=replace(update.params or view.start, weights=weights), size=max(1, update.size))


@dataclass(frozen=True)
class NotNumbers:
    """Weights that are not numbers."""

    def __call__(self, update: Update, view: View) -> Update:
        weights = torch.full_like(view.start.weights, torch.nan)
        return replace(update, params=replace(update.params or view.start, weights=weights), size=max(1, update.size))


@dataclass(frozen=True)
class ClaimedSize:
    """The honest update, said to be of so many samples."""

    size: float

    def __call__(self, update: Update, view: View) -> Update:
        return replace(update, size=int(self.size)) if update.params is not None else update


@dataclass(frozen=True)
class FreeRide:
    """The global model sent back as if trained, with noise in multiples of the deviation of its weights."""

    noise: float

    def __call__(self, update: Update, view: View) -> Update:
        if update.params is None:
            return update
        drawn = torch.randn(view.start.weights.shape, generator=view.rng)
        weights = view.start.weights + self.noise * view.start.weights.std() * drawn
        return replace(update, params=replace(view.start, weights=weights))


@dataclass(frozen=True)
class SameUpdate:
    """The mean of what all attackers send, from each of them."""

    def __call__(self, update: Update, view: View) -> Update:
        states = [own.params for own in view.mine.values() if own.params is not None]
        if update.params is None:
            return update
        weights = torch.stack([state.weights for state in states]).mean(dim=0)
        return replace(update, params=replace(update.params, weights=weights))


@dataclass(frozen=True)
class WithinTheSpread:
    """The mean of the honest updates less so many of their deviations in each coordinate (Baruch et al. 2019)."""

    deviations: float

    def __call__(self, update: Update, view: View) -> Update:
        if update.params is None or not view.others:
            return update
        steps = torch.stack([state.weights for state in view.others])
        weights = steps.mean(dim=0) - self.deviations * steps.std(dim=0, correction=0)
        return replace(update, params=replace(update.params, weights=weights))
