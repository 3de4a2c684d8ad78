"""What a part may offer beyond being called. Who can use an ability asks for it by name, and never asks for a class.

A part that lacks an ability, or answers None where its settings rule it out, is used client by client, as any other. A
part that is bound to one side of `A+B` passes its abilities on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Generator, Tensor

from fedpca.core import Aggregate, Order, Params, Report, Site, Train, When, ability
from fedpca.screening import Claims

Answer = TypeVar("Answer")
OfMany = Callable[[Sequence[Site]], list[Answer]]  # of clients that share one model, which holds the global weights
LogitShift = Callable[[Tensor, int], Tensor | None]  # a client's labels (n,), classes -> (classes,); None: nothing
Gradient = Callable[[Tensor], Tensor]  # weights (P,) or (G, P) -> the gradient of each client's batch (G, P)
Direction = Callable[[Tensor, Gradient, Order], Tensor]  # weights, gradient, order -> (G, P), which a step goes down


__all__ = ["ability"]  # from here too: it is asked for beside the protocols


class DeclaresClaims(Protocol):
    """A report, or a training that reports, which says what its numbers can be; a function does it by `says`."""

    @property
    def claims(self) -> Claims: ...


class ReportsOrSelectsForMany(Protocol[Answer]):
    """A report or a selection that takes one pass for many small clients where each alone would take one."""

    @property
    def of_many(self) -> OfMany[Answer] | None: ...


class NeedsFeatures(Protocol):
    """A report of which the features of the model are a part: a model without any is refused at the start."""

    @property
    def needs_features(self) -> bool: ...


class SelectsNothing(Protocol):
    """A selection that can tell from the order alone that a client has nothing to train on: it need not be asked."""

    def idle(self, order: Order) -> bool: ...


class ShiftsLogits(Protocol):
    """A loss that is the cross-entropy of the logits plus a shift, which depends on the client's labels alone."""

    def logit_shift(self, labels: Tensor, classes: int) -> Tensor | None: ...


class PullsBack(Protocol):
    """A loss that adds half of this many times the squared distance of the weights from the start of the round."""

    @property
    def pull(self) -> float: ...


class StepsForMany(Protocol):
    """A step of which the direction can be computed for many clients at once, each with its own weights."""

    def direction(self, weights: Tensor, gradient: Gradient, when: When | Order) -> Tensor: ...


class StepsForThese(Protocol):
    """The same of a step that looks at each client's memory or order: made anew for those that train together."""

    def direction_for(self, sites: Sequence[Site]) -> Direction: ...


class TiedToParts(Protocol):
    """A part of a training that works only beside other parts of the same method, such as its `step`."""

    @property
    def tied_to(self) -> Sequence[str]: ...


class ReadsRounds(Protocol):
    """A part that says whether it looks at how many rounds there will be: `Order.rounds` or `When.rounds`.

    A part of fedpca that does not say it does not look. A part of another package might.
    """

    @property
    def reads_rounds(self) -> bool: ...


class GoesOnFromAnother(Protocol):
    """An aggregation that makes more of what another one does: bounds on weights belong around the other one."""

    def with_inner(self, change: Callable[[Aggregate], Aggregate]) -> Aggregate: ...


class IsMeanByVerdicts(Protocol):
    """An aggregation that is a mean whose weights follow from verdicts, sizes and reliabilities, and from no state."""

    @property
    def mean_by_verdicts(self) -> bool: ...


class OnlyGoesOn(Protocol):
    """A `GoesOnFromAnother` that looks at the other one's outcome, and at no update."""

    @property
    def only_goes_on(self) -> bool: ...


class SaysWhyNoMean(Protocol):
    """An aggregation that could be a mean by verdicts under other settings, and says which."""

    @property
    def why_no_mean(self) -> str: ...


class MadeOfParts(Protocol):
    """A training that two methods can change part by part, each its own."""

    @property
    def parts(self) -> Mapping[str, Any]: ...

    def with_parts(self, parts: Mapping[str, Any]) -> Train: ...


class TrainsAsBatch(Protocol):
    """A training that many small clients can do as one."""

    @property
    def as_batch(self) -> BatchTraining | None: ...


@dataclass(frozen=True)
class BatchTraining:
    """All that training many clients as one needs to know: SGD on mini-batches of images as they are."""

    lr: float
    momentum: float
    weight_decay: float
    batch: int
    epochs: int
    batches: Callable[[int, Generator], Iterator[Tensor]]  # samples of a client, random numbers -> rows of each step
    logit_shift: LogitShift
    pull: float  # see `PullsBack`
    direction_for: Callable[[Sequence[Site]], Direction]
    after: Callable[[Site, Params], Report] | None
